package layer_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
)

func TestErrorsNameWhatPeopleWrote(t *testing.T) {
	t.Parallel()
	source := func(name, body string) *machineconfigs.Config {
		cfg := config(t, body)
		cfg.Name = name
		return cfg
	}
	first := source("50-a", `{"storage":{"files":[{"path":"/etc/a"},{"path":"/etc/private","contents":{"source":"data:,x"}}],
		"directories":[{"path":"/etc/os-release"}],"links":[{"path":"/etc/chrony.conf","target":"x"}]}}`)
	second := source("99-b", `{"storage":{"files":[{"path":"/etc/private","mode":420}]},
		"systemd":{"units":[{"name":"no.service","enabled":true,"dropins":[{"name":"x.conf","contents":"y"}]}]}}`)
	second.OSImageURL = "registry.example.com/os:1"
	item := func(path, words string) *layer.Error {
		return &layer.Error{MachineConfig: "rendered-worker-1", Path: path, Item: words, Err: errors.New("is wrong")}
	}
	tests := map[string]struct {
		err  error
		want string
	}{
		"a unit":      {item("spec.config.systemd.units[7]", "unit no.service"), `MachineConfig "99-b": spec.config.systemd.units[0]: unit no.service: is wrong`},
		"a drop-in":   {item("x", "drop-in x.conf of unit no.service"), `MachineConfig "99-b": spec.config.systemd.units[0]: drop-in x.conf of unit no.service: is wrong`},
		"a directory": {item("x", "directory /etc/os-release"), `MachineConfig "50-a": spec.config.storage.directories[0]: directory /etc/os-release: is wrong`},
		"a link":      {item("x", "link /etc/chrony.conf"), `MachineConfig "50-a": spec.config.storage.links[0]: link /etc/chrony.conf: is wrong`},
		"a file of two": {
			item("x", "file /etc/private"),
			`MachineConfig "99-b": spec.config.storage.files[0]: file /etc/private (also in MachineConfig "50-a"): is wrong`,
		},
		"the OS image":           {item(layer.FieldOSImageURL, ""), `MachineConfig "99-b": spec.osImageURL: is wrong`},
		"an image of the stream": {item(layer.FieldExtensionsImage, ""), `MachineConfig "rendered-worker-1": spec.baseOSExtensionsContainerImage: is wrong`},
		"an item of no source":   {item("x", "unit other.service"), `MachineConfig "rendered-worker-1": x: unit other.service: is wrong`},
		"another error":          {errors.New("is wrong"), "is wrong"},
		"errors in others":       {fmt.Errorf("a: %w", errors.Join(item("x", "file /etc/a"), errors.New("b"))), "a: MachineConfig \"50-a\": spec.config.storage.files[0]: file /etc/a: is wrong\nb"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := layer.InSources(fault.NewTerminal("Reason", tt.err), []*machineconfigs.Config{first, second})
			require.EqualError(t, err, tt.want)
			require.Equal(t, "Reason", fault.Reason(err))
			require.ErrorIs(t, err, tt.err)
		})
	}
}
