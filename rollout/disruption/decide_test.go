package disruption_test

import (
	"path"
	"testing"

	openshiftv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"

	"github.com/layerwright/layerwright/rollout/disruption"
)

func none() openshiftv1.NodeDisruptionPolicySpecAction {
	return openshiftv1.NodeDisruptionPolicySpecAction{Type: openshiftv1.NoneSpecAction}
}

func of(kind openshiftv1.NodeDisruptionPolicySpecActionType) openshiftv1.NodeDisruptionPolicySpecAction {
	return openshiftv1.NodeDisruptionPolicySpecAction{Type: kind}
}

func reload(unit openshiftv1.NodeDisruptionPolicyServiceName) openshiftv1.NodeDisruptionPolicySpecAction {
	return openshiftv1.NodeDisruptionPolicySpecAction{Type: openshiftv1.ReloadSpecAction, Reload: &openshiftv1.ReloadService{ServiceName: unit}}
}

func restart(unit openshiftv1.NodeDisruptionPolicyServiceName) openshiftv1.NodeDisruptionPolicySpecAction {
	return openshiftv1.NodeDisruptionPolicySpecAction{Type: openshiftv1.RestartSpecAction, Restart: &openshiftv1.RestartService{ServiceName: unit}}
}

// policies are an administrator's.
func policies() *openshiftv1.NodeDisruptionPolicyConfig {
	return &openshiftv1.NodeDisruptionPolicyConfig{
		Files: []openshiftv1.NodeDisruptionPolicySpecFile{
			{Path: "/etc/app", Actions: []openshiftv1.NodeDisruptionPolicySpecAction{reload("app.service")}},
			{Path: "/etc/app/keys/", Actions: []openshiftv1.NodeDisruptionPolicySpecAction{of(openshiftv1.DaemonReloadSpecAction), restart("app.service")}},
			{Path: "/etc/app/kernel", Actions: []openshiftv1.NodeDisruptionPolicySpecAction{of(openshiftv1.RebootSpecAction)}},
			{Path: "/etc/app/pods", Actions: []openshiftv1.NodeDisruptionPolicySpecAction{of(openshiftv1.DrainSpecAction), reload("app.service")}},
			{Path: "/etc/motd", Actions: []openshiftv1.NodeDisruptionPolicySpecAction{none()}},
			{Path: "/etc/containers/policy.json", Actions: []openshiftv1.NodeDisruptionPolicySpecAction{none()}},
			{Path: "/var/lib/app", Actions: []openshiftv1.NodeDisruptionPolicySpecAction{restart("app.service")}},
		},
		Units: []openshiftv1.NodeDisruptionPolicySpecUnit{{Name: "app.service", Actions: []openshiftv1.NodeDisruptionPolicySpecAction{
			of(openshiftv1.DaemonReloadSpecAction), restart("app.service"),
		}}},
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	app := disruption.Action{Verb: disruption.Reload, Unit: "app.service"}
	again := disruption.Action{Verb: disruption.Restart, Unit: "app.service"}
	daemon := disruption.Action{Verb: disruption.DaemonReload}
	crio := disruption.Action{Verb: disruption.Reload, Unit: "crio.service", Optional: true}
	tests := map[string]struct {
		change disruption.Change
		want   disruption.Verdict
	}{
		"nothing":                             {},
		"what no image can change live":       {disruption.Change{Reboot: "/usr/bin/sh differs", Files: []string{"/etc/motd"}}, disruption.Verdict{Reboot: "/usr/bin/sh differs"}},
		"a file without a policy":             {disruption.Change{Files: []string{"/etc/motd", "/etc/other"}}, disruption.Verdict{Reboot: "/etc/other has changed, and no node disruption policy covers it"}},
		"None":                                {disruption.Change{Files: []string{"/etc/motd"}}, disruption.Verdict{}},
		"a file below a folder":               {disruption.Change{Files: []string{"/etc/app/x"}}, disruption.Verdict{Actions: []disruption.Action{app}}},
		"the folder's name is no prefix":      {disruption.Change{Files: []string{"/etc/apple"}}, disruption.Verdict{Reboot: "/etc/apple has changed, and no node disruption policy covers it"}},
		"the longest path wins":               {disruption.Change{Files: []string{"/etc/app/keys/a"}}, disruption.Verdict{Actions: []disruption.Action{daemon, again}}},
		"each action once, in order":          {disruption.Change{Files: []string{"/etc/app/a", "/etc/app/b", "/etc/app/keys/a"}}, disruption.Verdict{Actions: []disruption.Action{app, daemon, again}}},
		"Reboot overrides the others":         {disruption.Change{Files: []string{"/etc/app/a", "/etc/app/kernel"}}, disruption.Verdict{Reboot: "/etc/app/kernel: its policy is Reboot"}},
		"Drain":                               {disruption.Change{Files: []string{"/etc/app/pods"}}, disruption.Verdict{Drain: true, Actions: []disruption.Action{app}}},
		"a built-in policy":                   {disruption.Change{Files: []string{"/etc/containers/registries.d/x.yaml"}}, disruption.Verdict{Actions: []disruption.Action{crio}}},
		"registries.conf drains":              {disruption.Change{Files: []string{"/etc/containers/registries.conf"}}, disruption.Verdict{Drain: true, Actions: []disruption.Action{crio}}},
		"a built-in policy that was replaced": {disruption.Change{Files: []string{"/etc/containers/policy.json"}}, disruption.Verdict{}},
		"a unit":                              {disruption.Change{Files: []string{"/etc/systemd/system/app.service"}}, disruption.Verdict{Actions: []disruption.Action{daemon, again}}},
		"a drop-in":                           {disruption.Change{Files: []string{"/etc/systemd/system/app.service.d/10-x.conf"}}, disruption.Verdict{Actions: []disruption.Action{daemon, again}}},
		"a unit that is enabled":              {disruption.Change{Files: []string{"/etc/systemd/system/multi-user.target.wants/app.service"}}, disruption.Verdict{Actions: []disruption.Action{daemon, again}}},
		"a unit without a policy":             {disruption.Change{Files: []string{"/etc/systemd/system/x.service"}}, disruption.Verdict{Reboot: "/etc/systemd/system/x.service has changed, and no node disruption policy covers it"}},
		"what is in each image for people":    {disruption.Change{Files: []string{"/etc/machine-config-daemon/currentconfig"}}, disruption.Verdict{}},
		"SSH keys":                            {disruption.Change{SSHKeys: true}, disruption.Verdict{}},
		"a soft reboot does": {
			disruption.Change{Reboot: "/usr/bin/sh differs", Soft: true, Files: []string{"/etc/other", "/etc/app/pods"}}, disruption.Verdict{Reboot: "/usr/bin/sh differs", Soft: true},
		},
		"a soft reboot for a file without a policy": {
			disruption.Change{Soft: true, Files: []string{"/etc/motd", "/etc/other"}}, disruption.Verdict{Reboot: "/etc/other has changed, and no node disruption policy covers it", Soft: true},
		},
		"a soft reboot is not needed": {disruption.Change{Soft: true, Files: []string{"/etc/app/x"}}, disruption.Verdict{Actions: []disruption.Action{app}}},
		"Reboot is no soft reboot": {
			disruption.Change{Reboot: "/usr/bin/sh differs", Soft: true, Files: []string{"/etc/other", "/etc/app/kernel"}}, disruption.Verdict{Reboot: "/etc/app/kernel: its policy is Reboot"},
		},
		"a file of the node without a policy":  {disruption.Change{NodeFiles: []string{"/var/lib/x"}}, disruption.Verdict{}},
		"a file of the node that has a policy": {disruption.Change{NodeFiles: []string{"/var/lib/app/x"}}, disruption.Verdict{Actions: []disruption.Action{again}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, disruption.Decide(tt.change, policies()))
		})
	}
}

func TestSSHKeysMayReboot(t *testing.T) {
	t.Parallel()
	spec := &openshiftv1.NodeDisruptionPolicyConfig{}
	spec.SSHKey.Actions = []openshiftv1.NodeDisruptionPolicySpecAction{of(openshiftv1.RebootSpecAction)}
	assert.Equal(t, disruption.Verdict{Reboot: "SSH keys: its policy is Reboot"}, disruption.Decide(disruption.Change{SSHKeys: true}, spec))
}

func TestMerge(t *testing.T) {
	t.Parallel()
	assert.Equal(t, disruption.Defaults(), disruption.Merge(&openshiftv1.NodeDisruptionPolicyConfig{}))
	got, defaults := disruption.Merge(policies()), disruption.Defaults()
	assert.Len(t, got.Files, len(defaults.Files)+len(policies().Files)-1, "one of them replaces a built-in one")
	assert.Equal(t, "/etc/containers/policy.json", got.Files[2].Path)
	assert.Equal(t, openshiftv1.NoneStatusAction, got.Files[2].Actions[0].Type)
	assert.Len(t, got.Units, 2)
	assert.Equal(t, defaults.SSHKey, got.SSHKey)
}

// FuzzDecide holds that a file which no policy leads to reboots, and that one which a policy names
// is judged by it or by a longer one.
func FuzzDecide(f *testing.F) {
	for _, seed := range [][2]string{{"/etc/app", "/etc/app/x"}, {"/", "/etc/x"}, {"/etc/a/", "/etc/a"}, {"etc", "/etc/systemd/system/a.d/b"}, {"", ""}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, policy, file string) {
		spec := &openshiftv1.NodeDisruptionPolicyConfig{Files: []openshiftv1.NodeDisruptionPolicySpecFile{
			{Path: policy, Actions: []openshiftv1.NodeDisruptionPolicySpecAction{restart("fuzz.service")}},
		}}
		v := disruption.Decide(disruption.Change{Files: []string{file}}, spec)
		if v.Reboot != "" {
			assert.Empty(t, v.Actions)
			assert.False(t, v.Drain)
			assert.False(t, path.IsAbs(file) && path.Clean(policy) == file, "a policy names the file")
		}
		_ = disruption.UnitOf(file)
	})
}
