package nodestate

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
)

// newestMinor is that of Ignition's specification that is read, 3.5. Each has all that those before
// it have.
const newestMinor = 5

// Read reads of a rendered MachineConfig what this package needs: its name, its Ignition
// configuration and what of it stays out of images. It was checked when it was rendered.
// machineconfigs.Parse, which also reads what people write, would make the agent's program larger
// by more than a third.
func Read(mc *mcfgv1.MachineConfig) (*machineconfigs.Config, error) {
	cfg := &machineconfigs.Config{Name: mc.Name}
	if raw := mc.Spec.Config.Raw; len(raw) > 0 {
		if err := json.Unmarshal(raw, &cfg.Ignition); err != nil {
			return nil, fmt.Errorf("reading spec.config of MachineConfig %q: %w", mc.Name, err)
		}
		if version := cfg.Ignition.Ignition.Version; !isKnown(version) {
			return nil, fmt.Errorf("reading spec.config of MachineConfig %q: Ignition's specification %q is not known: 3.0.0 to 3.%d.0 are",
				mc.Name, version, newestMinor)
		}
	}
	if text, has := mc.Annotations[mcfgv1.AnnotationNodeOnlyContent]; has {
		if err := json.Unmarshal([]byte(text), &cfg.NodeOnly); err != nil {
			return nil, fmt.Errorf("reading annotation %s of MachineConfig %q: %w", mcfgv1.AnnotationNodeOnlyContent, mc.Name, err)
		}
	}
	return cfg, nil
}

func isKnown(version string) bool {
	rest, is3 := strings.CutPrefix(version, "3.")
	minor, isRelease := strings.CutSuffix(rest, ".0")
	n, err := strconv.Atoi(minor)
	return is3 && isRelease && err == nil && n >= 0 && n <= newestMinor
}
