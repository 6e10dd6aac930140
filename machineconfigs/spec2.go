package machineconfigs

import (
	"encoding/json"
	"errors"
	"fmt"

	conversion "github.com/coreos/ign-converter/translate/v24tov31"
	"github.com/coreos/ign-converter/util"
	"github.com/coreos/ignition/config/v2_4"
	old "github.com/coreos/ignition/config/v2_4/types"
	"github.com/coreos/ignition/config/validate/report"
	to32 "github.com/coreos/ignition/v2/config/v3_2/translate"
	to33 "github.com/coreos/ignition/v2/config/v3_3/translate"
	to34 "github.com/coreos/ignition/v2/config/v3_4/translate"
	to35 "github.com/coreos/ignition/v2/config/v3_5/translate"
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs/document"
)

// readSpec2 reads specification 2.2 to 2.4, and translates it. What has no meaning in specification
// 3, such as networkd units or files on other filesystems than the root, is refused.
func (r *ignitionReader) readSpec2() types.Config {
	// The library takes a value of a wrong type for an unknown version.
	if err := json.Unmarshal(r.doc.Small, &old.Config{}); err != nil {
		r.addJSON(err)
		return types.Config{}
	}
	cfg, rpt, err := v2_4.Parse(r.doc.Small)
	r.addReport2(rpt)
	if err != nil && len(r.found) == 0 {
		r.add("", err)
	}
	if len(r.found) > 0 {
		return types.Config{}
	}
	translated, err := r.translate(cfg)
	if err != nil {
		r.add("", fmt.Errorf("translating from Ignition specification 2: %w; write it for specification %s", err, types.MaxVersion.String()))
	}
	return translated
}

func (r *ignitionReader) translate(cfg old.Config) (types.Config, error) {
	if err := onlyRoot(&cfg.Storage); err != nil {
		return types.Config{}, err
	}
	// A file is on a filesystem that has a name, and in a MachineConfig that can only be the root.
	root := func() map[string]string { return map[string]string{"root": "/"} }
	cfg31, err := conversion.Translate(cfg, root())
	if isDuplicate(err) {
		// Specification 2 had the last of two files with the same path win. Specification 3 refuses
		// the second.
		var single old.Config
		if single, err = conversion.RemoveDuplicateFilesUnitsUsers(cfg); err == nil {
			r.unplaced = true
			cfg31, err = conversion.Translate(single, root())
		}
	}
	if err != nil {
		return types.Config{}, err
	}
	return to35.Translate(to34.Translate(to33.Translate(to32.Translate(cfg31)))), nil
}

// onlyRoot refuses paths on named filesystems. The translation would take them for paths of the
// root.
func onlyRoot(storage *old.Storage) error {
	var nodes []old.Node
	for _, file := range storage.Files {
		nodes = append(nodes, file.Node)
	}
	for _, directory := range storage.Directories {
		nodes = append(nodes, directory.Node)
	}
	for _, link := range storage.Links {
		nodes = append(nodes, link.Node)
	}
	for _, node := range nodes {
		if node.Filesystem != "root" {
			return fmt.Errorf("%q is on the filesystem %q, and only \"root\" can be translated", node.Path, node.Filesystem)
		}
	}
	return nil
}

func isDuplicate(err error) bool {
	var (
		inode   util.DuplicateInodeError
		inodeP  *util.DuplicateInodeError
		unit    util.DuplicateUnitError
		unitP   *util.DuplicateUnitError
		dropin  util.DuplicateDropinError
		dropinP *util.DuplicateDropinError
	)
	return errors.As(err, &inode) || errors.As(err, &inodeP) || errors.As(err, &unit) || errors.As(err, &unitP) ||
		errors.As(err, &dropin) || errors.As(err, &dropinP)
}

// addReport2 takes over what the validation of specification 2 found. It knows lines, not paths.
func (r *ignitionReader) addReport2(rpt report.Report) {
	for _, entry := range rpt.Entries {
		at := ""
		if entry.Line > 0 { // where the value ends
			at = r.doc.PathAt(r.doc.Offset(entry.Line, entry.Column) + 1)
		}
		e := r.mistake(at, document.Explain(entry.Message))
		if entry.Kind == report.EntryError {
			r.found = append(r.found, e)
		} else {
			r.warnings = append(r.warnings, e)
		}
	}
}
