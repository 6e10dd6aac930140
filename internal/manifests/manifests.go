package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"
)

// Stdin is the name that stands for standard input.
const Stdin = "-"

// kustomization is a file of a folder that holds no object.
const kustomization = "Kustomization"

// Set is what files hold.
type Set struct {
	// Objects are those whose kind the scheme knows, in the order of the files and within them.
	Objects []client.Object
	// Others are the objects of other kinds, by file, kind and name, for people.
	Others []string
}

// Reader reads files.
type Reader struct {
	// Scheme knows the kinds that are wanted.
	Scheme *runtime.Scheme
	// Stdin is read for the name "-"; nil where there is none.
	Stdin io.Reader

	set  Set
	seen map[string]string // where each object was read
}

// Read reads the objects of files, of the YAML and JSON files directly in folders, and of standard
// input. Lists are taken apart. Errors name the file and the document in it, counted from 1: what
// is no YAML, has no kind, or has a field that its kind doesn't know, and an object that is there
// twice.
func (r *Reader) Read(names []string) (*Set, error) {
	r.set, r.seen = Set{}, map[string]string{}
	for _, name := range names {
		if err := r.readName(name); err != nil {
			return nil, err
		}
	}
	return &r.set, nil
}

func (r *Reader) readName(name string) error {
	if name == Stdin {
		if r.Stdin == nil {
			return errors.New("reading standard input: there is none")
		}
		return r.readFrom("standard input", r.Stdin)
	}
	files, err := filesOf(name)
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file) //nolint:gosec // the user names the file
		if err != nil {
			return fmt.Errorf("reading %q: %w", file, err)
		}
		if err := r.readFrom(file, bytes.NewReader(content)); err != nil {
			return err
		}
	}
	return nil
}

// filesOf gives the file itself, or the files of a folder.
func filesOf(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", name, err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", name, err)
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			files = append(files, filepath.Join(name, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("reading %q: the folder has no .yaml, .yml or .json file", name)
	}
	return files, nil
}

func (r *Reader) readFrom(file string, content io.Reader) error {
	documents := yaml.NewYAMLReader(bufio.NewReader(content))
	for number := 1; ; number++ {
		place := fmt.Sprintf("%q, document %d", file, number)
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", place, err)
		}
		if err := r.addDocument(place, document); err != nil {
			return fmt.Errorf("reading %s: %w", place, err)
		}
	}
}

func (r *Reader) addDocument(place string, document []byte) error {
	var content map[string]any
	if err := sigsyaml.UnmarshalStrict(document, &content); err != nil {
		return err
	}
	if len(content) == 0 {
		return nil
	}
	return r.add(place, &unstructured.Unstructured{Object: content})
}

// add takes one object, or those of a list.
func (r *Reader) add(place string, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	switch {
	case kind.Kind == "" || kind.Version == "":
		return errors.New("it has no apiVersion and kind, so it is no Kubernetes object")
	case object.IsList():
		return object.EachListItem(func(item runtime.Object) error {
			return r.add(place, item.(*unstructured.Unstructured)) //nolint:forcetypeassert // the items of an Unstructured are
		})
	case kind.Kind == kustomization:
		return nil
	case !r.Scheme.Recognizes(kind):
		r.set.Others = append(r.set.Others, fmt.Sprintf("%s %q of %s", kind.Kind, object.GetName(), place))
		return nil
	}
	name := strings.Join([]string{kind.GroupKind().String(), object.GetNamespace(), object.GetName()}, "/")
	if before, ok := r.seen[name]; ok {
		return fmt.Errorf("%s %q is in %s too", kind.Kind, object.GetName(), before)
	}
	r.seen[name] = place
	return r.decode(object)
}

func (r *Reader) decode(object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	typed, err := r.Scheme.New(kind)
	if err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
		return fmt.Errorf("%s %q: %w", kind.Kind, object.GetName(), err)
	}
	known, ok := typed.(client.Object)
	if !ok {
		return fmt.Errorf("%s is no kind of object", kind.Kind)
	}
	r.set.Objects = append(r.set.Objects, known)
	return nil
}
