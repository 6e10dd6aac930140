package layer

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/machineconfigs/layer/systemd"
)

// PresetPath is the preset file that keeps a first boot from undoing which units are enabled.
const PresetPath = "/etc/systemd/system-preset/10-machineconfigs.preset"

// enablement enables and disables units: first what is to be disabled, then what presets decide,
// and last what is to be enabled, so that a unit which is enabled by name stays so even if a
// disabled one names it in Also=.
func (s *splitter) enablement() {
	if len(s.record.units) == 0 {
		return
	}
	s.presetFile()
	s.disable()
	s.tree.quiet = true // what follows from presets gives way to what the configuration has in its place
	s.preset()
	s.tree.quiet = false
	for _, u := range s.record.units {
		if !isTrue(u.Enabled) || isTrue(u.Mask) {
			continue
		}
		s.enable(u)
	}
}

// enable enables a unit, or expects it of the content.
func (s *splitter) enable(u plannedUnit) {
	report := systemd.Enable(s.tree, u.Name)
	s.plan.Notices = append(s.plan.Notices, report.Notices...)
	for _, err := range report.Failures {
		if errors.Is(err, systemd.ErrNotFound) && s.contentFollows {
			s.plan.Expected = append(s.plan.Expected, "unit "+u.Name)
			s.late.units = append(s.late.units, u)
			continue
		}
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
	case errors.Is(err, systemd.ErrAlias):
		fix = "enable that one"
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

// disable disables what shall be disabled. A masked unit is off already.
func (s *splitter) disable() {
	var names []string
	for _, u := range s.record.units {
		if u.Enabled != nil && !*u.Enabled && !isTrue(u.Mask) {
			names = append(names, u.Name)
		}
	}
	s.plan.Notices = append(s.plan.Notices, systemd.Disable(s.tree, names...).Notices...)
	s.noteReenabled(slices.DeleteFunc(names, func(name string) bool { return systemd.Template(name) == "" }))
}

// noteReenabled tells about instances that cannot be kept disabled by a preset.
func (s *splitter) noteReenabled(instances []string) {
	if len(instances) == 0 {
		return
	}
	presets, err := systemd.ReadPresets(s.tree)
	if err != nil {
		return // where presets decide something, preset says so
	}
	for _, name := range instances {
		if presets.Reenables(s.tree, name) {
			s.plan.Notices = append(s.plan.Notices, fmt.Sprintf(
				"unit %q is disabled, but a new machine's first boot enables it again, because presets enable %q: mask it instead",
				name, systemd.Template(name)))
		}
	}
}

// preset applies the preset files to the units that the configuration brings and says nothing
// about. What systemctl could not do is only told: the published node agent goes on, too.
//
// All units that the configuration brings lose the links by which the image has enabled them: those
// were for another [Install] section than the one that counts now.
func (s *splitter) preset() {
	var brought, unsaid []string
	for _, u := range s.record.units {
		if u.hasContents() {
			brought = append(brought, u.Name)
			if u.Enabled == nil {
				unsaid = append(unsaid, u.Name)
			}
		}
	}
	systemd.Unlink(s.tree, brought...)
	if len(unsaid) == 0 {
		return
	}
	presets, err := systemd.ReadPresets(s.tree)
	if err != nil {
		s.errs = append(s.errs, &Error{
			Item: "unit " + unsaid[0], Path: "spec.config.systemd.units", MachineConfig: s.cfg.Name,
			Err: fmt.Errorf("finding out whether the unit is enabled: %w: set enabled to true or false", err),
		})
		return
	}
	report := systemd.Preset(s.tree, presets, unsaid...)
	s.plan.Notices = append(s.plan.Notices, report.Notices...)
	for _, err := range report.Failures {
		s.plan.Notices = append(s.plan.Notices, fmt.Sprintf("presets enable a unit that cannot be enabled: %v", err))
	}
}

// presetFile writes what is enabled and disabled as a preset file: systemd applies presets when a
// machine boots for the first time.
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

// presetText gives lines in the order of names: instances before their templates, because the first
// line that fits counts.
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
