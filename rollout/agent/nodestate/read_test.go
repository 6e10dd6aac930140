package nodestate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
)

func machineConfig(raw, nodeOnly string) *mcfgv1.MachineConfig {
	return &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "rendered-1", Annotations: map[string]string{mcfgv1.AnnotationNodeOnlyContent: nodeOnly}},
		Spec:       mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: []byte(raw)}},
	}
}

func TestReadAgreesWithTheParser(t *testing.T) {
	t.Parallel()
	mc := machineConfig(`{
	  "ignition":{"version":"3.5.0"},
	  "passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 A"],"passwordHash":"$6$x"}]},
	  "storage":{
	    "files":[{"path":"/var/a","mode":384,"contents":{"source":"data:,1"},"user":{"name":"core"}},{"path":"/etc/secret","contents":{"source":"data:,2"}}],
	    "directories":[{"path":"/var/d"}],"links":[{"path":"/var/l","target":"a"}]},
	  "systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Unit]\n","dropins":[{"name":"b.conf","contents":"[Unit]\n"}]}]}
	}`, `{"files":["/etc/secret"],"units":["a.service"]}`)
	want, err := machineconfigs.Parse(mc)
	require.NoError(t, err)
	got, err := Read(mc)
	require.NoError(t, err)
	assert.Equal(t, want.Name, got.Name)
	assert.Equal(t, want.Ignition, got.Ignition)
	assert.Equal(t, want.NodeOnly, got.NodeOnly)
	assert.NotEmpty(t, got.NodeOnly.Files)
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ raw, nodeOnly, want string }{
		"no JSON":            {"{", "{}", `reading spec.config of MachineConfig "rendered-1"`},
		"an old version":     {`{"ignition":{"version":"2.2.0"}}`, "{}", `specification "2.2.0" is not known: 3.0.0 to 3.5.0 are`},
		"a later version":    {`{"ignition":{"version":"3.6.0"}}`, "{}", `specification "3.6.0" is not known`},
		"a trial":            {`{"ignition":{"version":"3.5.0-experimental"}}`, "{}", `is not known`},
		"a broken list":      {`{"ignition":{"version":"3.2.0"}}`, "{", "reading annotation machineconfiguration.openshift.io/nodeOnlyContent"},
		"a missing version":  {`{"storage":{}}`, "{}", `specification "" is not known`},
		"another annotation": {``, `[]`, "reading annotation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(machineConfig(tt.raw, tt.nodeOnly))
			require.ErrorContains(t, err, tt.want)
		})
	}
	got, err := Read(machineConfig("", "{}"))
	require.NoError(t, err, "an empty one wants nothing")
	assert.Empty(t, got.Ignition.Storage.Files)
}
