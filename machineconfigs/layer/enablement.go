package layer

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/layerwright/layerwright/machineconfigs/layer/systemd"
)

// enablement enables and disables units: first what is to be disabled, then what presets decide, and last what is to be enabled, so
// that a unit which is enabled by name stays so even if a disabled one names it in Also=.
func (s *splitter) enablement() {
	if len(s.record.units) == 0 {
		return
	}
	s.presetFile()
	for _, u := range s.record.units {
		switch {
		case u.isMasked():
		case u.Enabled != nil && !*u.Enabled:
			s.disable(u)
		case u.hasContents():
			s.unlink(u)
		}
	}
	s.tree.quiet = true
	s.preset()
	s.tree.quiet = false
	for _, u := range s.record.units {
		if u.Enabled != nil && *u.Enabled && !u.isMasked() {
			report := systemd.Enable(s.tree, u.Name)
			s.report(u, report)
		}
	}
	s.errs = append(s.errs, s.tree.clashes...)
}

func (s *splitter) report(u plannedUnit, r systemd.Report) {
	for _, text := range r.Notices {
		s.notice(u.item, text)
	}
	for _, err := range r.Failures {
		s.fail(u.item, fmt.Errorf("enabling %w", withFix(err)))
	}
}

// withFix adds to what systemd would say what can be done about it.
func withFix(err error) error {
	fix := ""
	switch {
	case errors.Is(err, systemd.ErrNotFound):
		fix = "give the unit contents, install the package that has it in the Containerfile, or correct its name"
	case errors.Is(err, systemd.ErrMasked):
		fix = "set mask to false, or leave enabled out"
	case errors.Is(err, systemd.ErrExists):
		fix = "remove what is there in the Containerfile, or the alias from the unit"
	case errors.Is(err, errNotYet):
		fix = "put the unit into systemd.units, or its content into a data URL"
	case errors.Is(err, errNotKept):
		fix = "give the unit contents in systemd.units"
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, fix)
}

func (s *splitter) disable(u plannedUnit) {
	for _, text := range systemd.Disable(s.tree, u.Name).Notices {
		s.notice(u.item, text)
	}
}

// unlink removes how the image has enabled a unit: that was by another [Install] section than the one that counts now. Links that
// the configuration makes itself stay.
func (s *splitter) unlink(u plannedUnit) {
	s.tree.quiet = true
	systemd.Unlink(s.tree, u.Name)
	s.tree.quiet = false
}

// preset applies the preset files to the units that the configuration brings and says nothing about. What systemctl could not do
// is only told: the published node agent goes on, too.
func (s *splitter) preset() {
	var presets systemd.Presets
	read := false
	for _, u := range s.record.units {
		if u.Enabled != nil || !u.hasContents() {
			continue
		}
		if !read {
			var err error
			if presets, err = systemd.ReadPresets(s.tree); err != nil {
				s.fail(u.item, fmt.Errorf("finding out whether the unit is enabled: %w: set enabled to true or false", err))
				return
			}
			read = true
		}
		report := systemd.Preset(s.tree, presets, u.Name)
		for _, text := range report.Notices {
			s.notice(u.item, text)
		}
		for _, err := range report.Failures {
			s.notice(u.item, fmt.Sprintf("presets enable it, and systemd cannot: %v", err))
		}
	}
}

// presetFile writes what is enabled and disabled as a preset file: systemd applies presets when a machine boots for the first time.
func (s *splitter) presetFile() {
	text := presetText(s.record.units)
	if text == "" {
		return
	}
	n := textNode(text)
	n.path = s.presets
	s.tree.put(n)
}

const presetHeader = "# Written by Layerwright from MachineConfigs. It keeps a first boot from undoing what is enabled in this image.\n"

// presetText gives lines in the order of names: instances before their templates, because the first line that fits counts.
func presetText(units []plannedUnit) string {
	var instances, others []string
	byTemplate := map[string][]string{}
	for _, name := range sortedUnits(units, true) {
		if template := systemd.Template(name); template != "" {
			byTemplate[template] = append(byTemplate[template], systemd.Instance(name))
			continue
		}
		others = append(others, "enable "+name)
	}
	for _, template := range sortedKeys(byTemplate) {
		instances = append(instances, "enable "+template+" "+strings.Join(byTemplate[template], " "))
	}
	for _, name := range sortedUnits(units, false) {
		others = append(others, "disable "+name)
	}
	if len(instances)+len(others) == 0 {
		return ""
	}
	return presetHeader + strings.Join(append(instances, others...), "\n") + "\n"
}

// sortedUnits gives the names of units that are to be enabled, or disabled.
func sortedUnits(units []plannedUnit, enabled bool) []string {
	names := map[string]bool{}
	for _, u := range units {
		if u.Enabled != nil && *u.Enabled == enabled {
			names[path.Base(u.Name)] = true
		}
	}
	return sortedKeys(names)
}
