package archtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// listed is the part of "go list -json" that is used.
type listed struct {
	Dir        string
	ImportPath string
	Imports    []string
	GoFiles    []string
	CgoFiles   []string
	// IgnoredGoFiles are for other systems and tags; they keep the rules too.
	IgnoredGoFiles []string
	Module         *struct{ Main bool }
}

// Load reads the packages of the module in dir, and the whole graphs that the checker's rules look
// at. Files behind build tags count: their imports are read from the source.
func Load(ctx context.Context, dir string, checker Checker) ([]Package, error) {
	all, err := list(ctx, dir)
	if err != nil {
		return nil, err
	}
	imports := make(map[string][]string, len(all))
	for _, l := range all {
		imports[l.ImportPath] = l.Imports
	}
	var packages []Package
	for _, l := range all {
		if l.Module == nil || !l.Module.Main {
			continue
		}
		p, err := read(l)
		if err != nil {
			return nil, err
		}
		if checker.NeedsGraph(p.Path) {
			p.Graph = reach(p.Path, imports)
		}
		packages = append(packages, p)
	}
	return packages, nil
}

// list asks for the module and all that it imports. The tags bring in packages that hold nothing
// but end-to-end tests, and what links Buildah.
func list(ctx context.Context, dir string) ([]listed, error) {
	const fields = "-json=Dir,ImportPath,Imports,GoFiles,CgoFiles,IgnoredGoFiles,Module"
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-tags=e2e,containers_image_openpgp,exclude_graphdriver_btrfs", fields, "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w: %s", err, stderr.Bytes())
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(stdout)); ; {
		var l listed
		switch err := decoder.Decode(&l); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("reading the list of packages: %w", err)
		}
		all = append(all, l)
	}
}

// read parses the package's own files: for the clock, for its comment, and for imports behind build
// tags.
func read(l listed) (Package, error) {
	p := Package{Path: l.ImportPath}
	files := token.NewFileSet()
	for _, name := range slices.Concat(l.GoFiles, l.CgoFiles, l.IgnoredGoFiles) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, filepath.Join(l.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return Package{}, fmt.Errorf("parsing %s: %w", l.ImportPath, err)
		}
		p.Imports = append(p.Imports, importsOf(file)...)
		p.ClockUses = append(p.ClockUses, clockUses(files, file)...)
		if name == "doc.go" && strings.HasPrefix(file.Doc.Text(), docPrefix(file.Name.Name)) {
			p.HasPackageComment = true
		}
	}
	slices.Sort(p.Imports)
	p.Imports = slices.Compact(p.Imports)
	return p, nil
}

// docPrefix is how Go's convention starts a package comment.
func docPrefix(name string) string {
	if name == "main" {
		return "Command "
	}
	return "Package " + name + " "
}

func importsOf(file *ast.File) []string {
	var paths []string
	for _, spec := range file.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// clock are the functions of package time that read the clock or wait for it.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// clockUses finds them called or passed on, whatever name the file gives the package.
func clockUses(files *token.FileSet, file *ast.File) []string {
	var uses []string
	report := func(node ast.Node, what string) {
		position := files.Position(node.Pos())
		uses = append(uses, fmt.Sprintf("%s:%d: %s", filepath.Base(position.Filename), position.Line, what))
	}
	names := map[string]bool{}
	for _, spec := range file.Imports {
		switch {
		case spec.Path.Value != `"time"`:
		case spec.Name == nil:
			names["time"] = true
		case spec.Name.Name == ".":
			report(spec, "dot import of time")
		default:
			names[spec.Name.Name] = true
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if of, ok := selector.X.(*ast.Ident); ok && names[of.Name] && slices.Contains(clock, selector.Sel.Name) {
			report(selector, "time."+selector.Sel.Name)
		}
		return true
	})
	return uses
}

// reach walks the import graph and remembers a shortest way to each package.
func reach(from string, imports map[string][]string) map[string][]string {
	ways := map[string][]string{}
	queue := [][]string{{from}}
	for len(queue) > 0 {
		way := queue[0]
		queue = queue[1:]
		for _, next := range imports[way[len(way)-1]] {
			if _, seen := ways[next]; seen || next == from {
				continue
			}
			ways[next] = append(slices.Clone(way), next)
			queue = append(queue, ways[next])
		}
	}
	return ways
}
