package machineconfigs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/vcontext/report"

	"github.com/layerwright/layerwright/machineconfigs/document"
)

// Versions of Ignition's specification that are read; the last one is what is written.
var (
	versions3 = []string{"3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"}
	versions2 = []string{"2.2.0", "2.3.0", "2.4.0"}
)

const understood = "3.0.0 to 3.5.0, and 2.2.0 to 2.4.0"

// ignitionReader reads the Ignition configuration of one MachineConfig.
type ignitionReader struct {
	name string
	doc  *document.Document
	// elements are the names of what is in the document; read when the first mistake is found.
	elements *document.Elements
	// unplaced says that paths are not those of the document.
	unplaced bool
	warnings []*Error
	found    []*Error
}

// empty is a configuration that asks for nothing.
func empty() types.Config {
	return types.Config{Ignition: types.Ignition{Version: types.MaxVersion.String()}}
}

// read gives the configuration in the newest specification. Where it finds mistakes the
// configuration means nothing.
func (r *ignitionReader) read(raw []byte) types.Config {
	r.doc = document.New(raw)
	if isEmpty(r.doc.Small) {
		return empty()
	}
	version, ok := r.version()
	if !ok {
		return empty()
	}
	var cfg types.Config
	if slices.Contains(versions2, version) {
		cfg = r.readSpec2()
	} else {
		cfg = r.readSpec3()
	}
	if len(r.found) > 0 {
		return empty()
	}
	eachResource(&cfg, func(resource *types.Resource) {
		if resource.Source != nil {
			source := r.doc.Restore(*resource.Source)
			resource.Source = &source
		}
	})
	return cfg
}

// isEmpty reports whether a MachineConfig has no Ignition configuration: it may be left out, null,
// or {}.
func isEmpty(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return true
	}
	return raw[0] == '{' && raw[len(raw)-1] == '}' && len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0
}

// guard turns a panic of the libraries that read and translate configurations into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading the configuration: the library that reads it gave up: %v", p)
		}
	}()
	return f()
}

// version finds out which specification the document follows. It is also the one place where what
// is not JSON is found.
func (r *ignitionReader) version() (string, bool) {
	var stub struct {
		IgnitionVersion json.RawMessage `json:"ignitionVersion"`
		Ignition        struct {
			Version string `json:"version"`
		} `json:"ignition"`
	}
	if err := json.Unmarshal(r.doc.Small, &stub); err != nil {
		r.addJSON(err)
		return "", false
	}
	version := stub.Ignition.Version
	switch {
	case slices.Contains(versions3, version), slices.Contains(versions2, version):
		return version, true
	case version == "" && stub.IgnitionVersion != nil:
		r.add("ignitionVersion", errors.New("specification 1 of Ignition is not understood: write the configuration anew, for specification 3.5.0"))
	case version == "":
		r.add("ignition.version", fmt.Errorf("the version is missing: add version: %s; understood are %s", types.MaxVersion.String(), understood))
	case strings.HasPrefix(version, "2.0.") || strings.HasPrefix(version, "2.1.") || strings.HasPrefix(version, "1."):
		r.add("ignition.version", fmt.Errorf("specification %s of Ignition is not understood: write the configuration for specification %s", version, types.MaxVersion.String()))
	default:
		r.add("ignition.version", fmt.Errorf("specification %q of Ignition is not understood; understood are %s", version, understood))
	}
	return "", false
}

func (r *ignitionReader) readSpec3() types.Config {
	cfg, rpt, err := v3_5.ParseCompatibleVersion(r.doc.Small)
	r.addReport(rpt)
	if err != nil && len(r.found) == 0 {
		r.add("", err)
	}
	return cfg
}

// addReport takes over what Ignition's validation found.
func (r *ignitionReader) addReport(rpt report.Report) {
	for _, entry := range rpt.Entries {
		e := r.mistake(document.PathString(entry.Context.Path), document.Explain(entry.Message))
		if entry.Context.Len() == 0 && entry.Marker.StartP != nil {
			r.placeAt(e, int(entry.Marker.StartP.Index))
		}
		if entry.Kind.IsFatal() {
			r.found = append(r.found, e)
		} else {
			r.warnings = append(r.warnings, e)
		}
	}
}

// addJSON takes over what the JSON library found.
func (r *ignitionReader) addJSON(err error) {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	e := r.mistake("", fmt.Errorf("reading JSON: %w", err))
	switch {
	case errors.As(err, &syntax):
		e.Line, e.Column = r.doc.Place(int(syntax.Offset) - 1)
	case errors.As(err, &mismatch):
		e.Err = document.Explain(err.Error())
		r.placeAt(e, int(mismatch.Offset))
	}
	r.found = append(r.found, e)
}

// placeAt is for values of a wrong type, which the JSON library reports by the offset where it
// stopped.
func (r *ignitionReader) placeAt(e *Error, offset int) {
	e.Path = r.doc.PathAt(offset)
	e.Element = r.element(e.Path)
	e.Line, e.Column = r.doc.Place(offset - 1)
	if strings.HasSuffix(e.Path, ".mode") {
		e.Err = fmt.Errorf("%w; JSON has no octal numbers: 0644 is 420", e.Err)
	}
}

// add reports a mistake at a path of the document.
func (r *ignitionReader) add(path string, err error) { r.found = append(r.found, r.mistake(path, err)) }

func (r *ignitionReader) mistake(path string, err error) *Error {
	e := invalid(r.name, path, err)
	if r.unplaced || path == "" {
		return e
	}
	e.Element = r.element(path)
	e.Line, e.Column = r.doc.Find(path)
	return e
}

func (r *ignitionReader) element(path string) string {
	if r.elements == nil {
		r.elements = &document.Elements{}
		_ = json.Unmarshal(r.doc.Small, r.elements) // as many names as can be read
	}
	return r.elements.Name(path)
}

// eachResource visits every resource of a configuration, in the order in which they are written as
// JSON.
func eachResource(cfg *types.Config, visit func(*types.Resource)) {
	all := func(resources []types.Resource) {
		for i := range resources {
			visit(&resources[i])
		}
	}
	all(cfg.Ignition.Config.Merge)
	visit(&cfg.Ignition.Config.Replace)
	all(cfg.Ignition.Security.TLS.CertificateAuthorities)
	for i := range cfg.Storage.Files {
		all(cfg.Storage.Files[i].Append)
		visit(&cfg.Storage.Files[i].Contents)
	}
	for i := range cfg.Storage.Luks {
		visit(&cfg.Storage.Luks[i].KeyFile)
	}
}
