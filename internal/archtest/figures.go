package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Figures are the sizes of one package. Tests and generated files are left out.
type Figures struct {
	// Folder is relative to the module.
	Folder string
	// Lines are all lines of its files.
	Lines int
	// Files are how many there are, and Knot the largest group of them in which each needs all
	// others.
	Files int
	Knot  []string
	// Imports are the packages of this module that it imports, as folders.
	Imports []string
	// HandedOn is how often a scope is passed to a function or a method, and Places how many
	// functions take one (see scopes).
	HandedOn, Places int
}

// scopes are the types that carry what is known of one build from step to step, by folder.
func scopes() map[string][]string {
	return map[string][]string{
		"builder/builds":       {"scope"},
		"builder/content":      {"building"},
		"builder/making":       {"building"},
		"builder/wanted/order": {"Order"},
	}
}

// Measure reads the packages of a module. It needs no compiled imports: only names that a package
// declares itself are looked at.
func Measure(dir, module string) ([]Figures, error) {
	folders := map[string][]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && isOutside(dir, path):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			folders[filepath.Dir(path)] = append(folders[filepath.Dir(path)], path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the module in %q: %w", dir, err)
	}
	var out []Figures
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		f, err := measure(dir, module, folder, folders[folder])
		if err != nil {
			return nil, err
		}
		if f.Files > 0 {
			out = append(out, f)
		}
	}
	return out, nil
}

// isOutside reports whether a folder is none of the module's own code.
func isOutside(dir, path string) bool {
	name := filepath.Base(path)
	if name == "testdata" || name == "bin" || strings.HasPrefix(name, ".") {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil && path != dir
}

func measure(dir, module, folder string, paths []string) (Figures, error) {
	relative, err := filepath.Rel(dir, folder)
	if err != nil {
		return Figures{}, err
	}
	out := Figures{Folder: filepath.ToSlash(relative)}
	set := token.NewFileSet()
	var files []*ast.File
	imports := map[string]bool{}
	for _, path := range paths {
		source, err := os.ReadFile(path) //nolint:gosec // a file of the module
		if err != nil {
			return out, err
		}
		file, err := parser.ParseFile(set, path, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return out, fmt.Errorf("parsing %q: %w", path, err)
		}
		if ast.IsGenerated(file) {
			continue
		}
		out.Files++
		out.Lines += bytes.Count(source, []byte("\n"))
		files = append(files, file)
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if own, isOwn := strings.CutPrefix(path, module+"/"); err == nil && isOwn {
				imports[own] = true
			}
		}
	}
	out.Imports = slices.Sorted(maps.Keys(imports))
	info := resolve(set, files)
	out.Knot = largestKnot(set, files, info)
	out.HandedOn, out.Places = handed(files, info, out.Folder)
	return out, nil
}

// measured is what the package that is measured is called.
const measured = "p"

// resolve finds what names stand for, as far as the package itself declares it.
func resolve(set *token.FileSet, files []*ast.File) *types.Info {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: nothing{}, Error: func(error) {}, FakeImportC: true}
	_, _ = config.Check(measured, set, files, info) // imports are missing on purpose
	return info
}

// nothing imports packages without content but for the scopes of builds.
type nothing struct{}

// Import is an empty package, or one with opaque scopes.
func (nothing) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	for _, name := range scopes()[strings.TrimPrefix(path, Module+"/")] {
		object := types.NewTypeName(token.NoPos, p, name, nil)
		types.NewNamed(object, types.NewStruct(nil, nil), nil)
		p.Scope().Insert(object)
	}
	p.MarkComplete()
	return p, nil
}

// largestKnot is the largest group of files that need each other, by their names.
func largestKnot(set *token.FileSet, files []*ast.File, info *types.Info) []string {
	at := func(pos token.Pos) string { return filepath.Base(set.Position(pos).Filename) }
	needs := map[string]map[string]bool{}
	for _, file := range files {
		needs[at(file.Pos())] = map[string]bool{}
	}
	for use, object := range info.Uses {
		if !object.Pos().IsValid() {
			continue
		}
		if from, to := at(use.Pos()), at(object.Pos()); from != to && isShared(object) {
			needs[from][to] = true
		}
	}
	reach := map[string]map[string]bool{}
	for from := range needs {
		seen := map[string]bool{}
		for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
			for to := range needs[todo[0]] {
				if !seen[to] {
					seen[to] = true
					todo = append(todo, to)
				}
			}
		}
		reach[from] = seen
	}
	var largest []string
	for _, from := range slices.Sorted(maps.Keys(reach)) {
		var knot []string
		for to := range reach[from] {
			if reach[to][from] {
				knot = append(knot, to)
			}
		}
		if len(knot) > len(largest) {
			slices.Sort(knot)
			largest = knot
		}
	}
	return largest
}

// isShared reports whether an object is one that other files can use: a field counts with its type.
func isShared(object types.Object) bool {
	v, isVar := object.(*types.Var)
	return !isVar || !v.IsField()
}

// handed counts the calls that pass a scope on, and the functions that take one.
func handed(files []*ast.File, info *types.Info, folder string) (calls, places int) {
	isScope := func(t types.Type) bool {
		pointer, is := t.(*types.Pointer)
		if !is {
			return false
		}
		named, is := pointer.Elem().(*types.Named)
		if !is || named.Obj().Pkg() == nil {
			return false
		}
		from := folder
		if path := named.Obj().Pkg().Path(); path != measured {
			from = strings.TrimPrefix(path, Module+"/")
		}
		return slices.Contains(scopes()[from], named.Obj().Name())
	}
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.CallExpr:
				for _, argument := range n.Args {
					if isScope(info.Types[argument].Type) {
						calls++
					}
				}
			case *ast.FuncDecl:
				object, isFunc := info.Defs[n.Name].(*types.Func)
				if !isFunc {
					return true
				}
				parameters := object.Signature().Params()
				for i := range parameters.Len() {
					if isScope(parameters.At(i).Type()) {
						places++
						break
					}
				}
			}
			return true
		})
	}
	return calls, places
}
