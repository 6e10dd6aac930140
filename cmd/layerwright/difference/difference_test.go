package difference

import (
	"encoding/json"
	"testing"

	openshiftv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/streams/compare"
)

func configOf(t *testing.T, ignition string, change func(*mcfgv1.MachineConfigSpec)) *machineconfigs.Config {
	t.Helper()
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered"}}
	mc.Spec.Config = runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"}` + ignition + `}`)}
	if change != nil {
		change(&mc.Spec)
	}
	config, err := machineconfigs.Parse(mc)
	require.NoError(t, err)
	return config
}

func files(list string) string { return `,"storage":{"files":[` + list + `]}` }

const (
	motd    = `{"path":"/etc/motd","contents":{"source":"data:,one"}}`
	motd2   = `{"path":"/etc/motd","contents":{"source":"data:,two"}}`
	sameAs1 = `{"path":"/etc/motd","contents":{"source":"data:;base64,b25l"}}`
	keys    = `,"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}`
	hash    = `,"passwd":{"users":[{"name":"core","passwordHash":"$6$secret"}]}`
	unit    = `,"systemd":{"units":[{"name":"app.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}]}`
)

func TestWhatAChangeDoesToANode(t *testing.T) {
	t.Parallel()
	policies := &openshiftv1.NodeDisruptionPolicyConfig{
		Files: []openshiftv1.NodeDisruptionPolicySpecFile{{Path: "/etc/app", Actions: []openshiftv1.NodeDisruptionPolicySpecAction{
			{Type: openshiftv1.DrainSpecAction},
			{Type: openshiftv1.RestartSpecAction, Restart: &openshiftv1.RestartService{ServiceName: "app.service"}},
		}}},
	}
	for name, test := range map[string]struct {
		before, after string
		change        func(*mcfgv1.MachineConfigSpec)
		changes       []string
		effect        string
	}{
		"nothing":           {files(motd), files(motd), nil, nil, "nothing"},
		"written otherwise": {files(motd), files(sameAs1), nil, nil, "nothing"},
		"a file":            {files(motd), files(motd2), nil, []string{"file /etc/motd changed"}, "drain and reboot: /etc/motd has changed, and no node disruption policy covers it"},
		"by a policy":       {"", files(`{"path":"/etc/app/x","contents":{"source":"data:,x"}}`), nil, []string{"file /etc/app/x added"}, "drain, and changes as it runs; restart app.service"},
		"below /var":        {"", files(`{"path":"/var/lib/x","contents":{"source":"data:,x"}}`), nil, []string{"file /var/lib/x added"}, "changes as it runs, and no unit is told"},
		"below /usr":        {"", files(`{"path":"/usr/share/x","contents":{"source":"data:,x"}}`), nil, []string{"file /usr/share/x added"}, "drain and reboot: file /usr/share/x differs, and is not in /etc"},
		"a unit":            {"", unit, nil, []string{"unit app.service added"}, "drain and reboot: /etc/systemd/system/app.service has changed, and no node disruption policy covers it"},
		"SSH keys":          {"", keys, nil, []string{"SSH keys of user core added", "user core added"}, "changes as it runs, and no unit is told"},
		"a password":        {"", hash, nil, []string{"password of user core added", "user core added"}, "changes as it runs, and no unit is told"},
		"a kernel argument": {
			"", "", func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"password=secret"} },
			[]string{"kernel argument password added"},
			"drain and reboot: kernel argument password differs",
		},
		"FIPS mode": {"", "", func(s *mcfgv1.MachineConfigSpec) { s.FIPS = true }, []string{"FIPS mode changed"}, "drain and reboot: FIPS mode differs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			same := &plan.Record{Keys: plan.Keys{Content: "c"}}
			d := Of("worker", Side{Name: "a", Config: configOf(t, test.before, nil), Record: same}, Side{Name: "b", Config: configOf(t, test.after, test.change), Record: same}, policies)
			assert.Equal(t, test.changes, texts(d.Configuration))
			assert.Equal(t, test.effect, d.Effect)
			assert.NotEmpty(t, d.SamePackages)
			assert.Empty(t, d.Unknown)
			text, err := json.Marshal(d)
			require.NoError(t, err)
			assert.NotContains(t, d.Text()+string(text), "secret")
		})
	}
}

func TestInputsThatDiffer(t *testing.T) {
	t.Parallel()
	record := func(base, file string) *plan.Record {
		return &plan.Record{Keys: plan.Keys{Content: base}, Inputs: plan.Inputs{Base: base, Config: []plan.Item{{Name: "file /etc/motd", Hash: file}}}}
	}
	from := Side{Name: "worker-1", Image: "os@sha256:1111111111111111", Stream: "rhel-9", Record: record("sha256:1", "x"), MachineConfig: "rendered-1"}
	to := Side{Name: "worker-2", Image: "os@sha256:2222222222222222", Stream: "rhel-10", Record: record("sha256:2", "y"), MachineConfig: "rendered-2"}
	d := Of("worker", from, to, &openshiftv1.NodeDisruptionPolicyConfig{})
	assert.Equal(t, []string{"base image digest changed from sha256:1 to sha256:2"}, texts(d.Inputs))
	assert.Equal(t, []string{"file /etc/motd changed"}, texts(d.Configuration), "the record says it where the configuration is gone")
	assert.Equal(t, "drain and reboot: base image digest differs", d.Effect)
	assert.Len(t, d.Unknown, 2)
	text := d.Text()
	for _, line := range []string{
		"Pool worker: from worker-1 (111111111111) to worker-2 (222222222222)\n", "  stream         rhel-9 -> rhel-10\n", "\nNot known (2)\n", "its rendered MachineConfig rendered-2 can't be read",
	} {
		assert.Contains(t, text, line)
	}
	to.Record = nil
	from.Base, to.Base = "os/base@sha256:1", "os/base@sha256:2"
	d = Of("worker", from, to, &openshiftv1.NodeDisruptionPolicyConfig{})
	assert.Equal(t, []string{"base image changed from sha256:1 to sha256:2"}, texts(d.Inputs), "objects say it too")
	to.Base = from.Base
	d = Of("worker", from, to, &openshiftv1.NodeDisruptionPolicyConfig{})
	assert.Empty(t, d.Effect)
	assert.Contains(t, d.Unknown, "what the change would do to a node", "never taken for nothing")
	from.Config, to.Config = configOf(t, "", nil), configOf(t, "", nil)
	d = Of("worker", from, to, &openshiftv1.NodeDisruptionPolicyConfig{})
	assert.Empty(t, d.Effect, "what it was made of is not known")
}

func TestPackagesForPeople(t *testing.T) {
	t.Parallel()
	d := &Difference{From: Side{Name: "one"}, To: Side{Name: "other"}, Packages: compare.Packages(
		[]compare.Package{{Type: "rpm", Name: "bash", Version: "5.1-1"}, {Type: "rpm", Name: "vim", Version: "9"}, {Type: "rpm", Name: "sed", Version: "4"}},
		[]compare.Package{{Type: "rpm", Name: "bash", Version: "5.2-1"}, {Type: "rpm", Name: "tmux", Version: "3"}, {Type: "rpm", Name: "sed", Version: "4"}},
	)}
	assert.Equal(t, []string{"vim 9 removed", "tmux 3 added", "bash upgraded from 5.1-1 to 5.2-1", "1 package the same"}, d.packages())
	assert.Contains(t, d.Text(), "\nPackages\n  vim 9 removed\n", "no number of lines, which is none of packages")
}
