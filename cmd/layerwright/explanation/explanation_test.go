package explanation

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/view"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func newBuild(name string, at int64, action mcfgv1.BuildAction, condition, reason string) mcfgv1.MachineOSBuild {
	b := mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(at, 0)}}
	b.Spec.MachineOSConfig.Name = "worker"
	b.Spec.Decision = &mcfgv1.BuildDecision{
		Action: action, OSImageStream: "rhel-10", BaseImage: "quay.io/os/base@" + digest,
		Inputs: mcfgv1.ImageInputs{Base: digest, Config: []mcfgv1.InputItem{{Name: "file /etc/motd", Hash: name}}},
	}
	b.Status.BuildStart, b.Status.BuildEnd = new(metav1.Unix(at+3, 0)), new(metav1.Unix(at+10, 0))
	b.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: reason, Message: "how it ended"}}
	return b
}

func clusterOf() *view.Objects {
	o := &view.Objects{Builds: []mcfgv1.MachineOSBuild{
		newBuild("w1", 100, mcfgv1.BuildActionBuild, mcfgv1.BuildSucceeded, mcfgv1.ReasonBuilt),
		newBuild("w2", 200, mcfgv1.BuildActionAppend, mcfgv1.BuildSucceeded, mcfgv1.ReasonConfigAppended),
		newBuild("w3", 300, mcfgv1.BuildActionBuild, mcfgv1.BuildFailed, mcfgv1.ReasonBuildFailed),
	}}
	o.Builds[1].Status.DigestedImagePushSpec = "registry.example.com/os/worker@" + digest
	image := mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: "worker-0123", Labels: map[string]string{mcfgv1.LabelMachineOSBuild: "w2"}}}
	image.Spec.PullSpec, image.Spec.MachineConfigPool = o.Builds[1].Status.DigestedImagePushSpec, "worker"
	image.Status.PreviousImagePullSpec = "registry.example.com/os/worker@" + mcfgv1.ImageDigestFormat(strings.ReplaceAll(digest, "0", "f"))
	image.Status.Architectures = []mcfgv1alpha1.ImageArchitecture{{Architecture: mcfgv1.ArchitectureAMD64, Size: new(int64(1_200_000_000)), PullSize: new(int64(12_000))}}
	image.Status.Conditions = []metav1.Condition{
		{Type: mcfgv1alpha1.ImageSigned, Status: metav1.ConditionTrue, Reason: mcfgv1alpha1.ReasonSigned},
		{Type: mcfgv1alpha1.ImageAttested, Status: metav1.ConditionTrue, Reason: mcfgv1alpha1.ReasonAttested, Message: "no SBOM: \x1b[31mbroken"},
		{Type: mcfgv1.ConditionReady, Status: metav1.ConditionFalse, Reason: mcfgv1alpha1.ReasonNotSigned, Message: "none"},
	}
	o.Images = []mcfgv1alpha1.MachineOSImage{image}
	return o
}

func TestFind(t *testing.T) {
	t.Parallel()
	o := clusterOf()
	for name, want := range map[string]struct{ build, image string }{
		"w2": {"w2", "worker-0123"}, "w1": {"w1", ""}, "worker": {"w3", ""}, "worker-0123": {"w2", "worker-0123"},
		"0123456789ab": {"w2", "worker-0123"}, digest: {"w2", "worker-0123"}, string(o.Images[0].Spec.PullSpec): {"w2", "worker-0123"},
		"01234": {}, "wroker": {}, "": {},
	} {
		build, image := Find(o, name)
		assert.Equal(t, want.build != "", build != nil, name)
		assert.Equal(t, want.image != "", image != nil, name)
		if build != nil {
			assert.Equal(t, want.build, build.Name, name)
		}
	}
}

func TestExplanations(t *testing.T) {
	t.Parallel()
	o := clusterOf()
	of := func(name string, steps ...Step) *Explanation {
		build, image := Find(o, name)
		return Of(o, build, image, steps)
	}
	appended := of("w2")
	assert.Equal(t, "w1", appended.ComparedWith)
	require.Len(t, appended.Changes, 1)
	assert.Equal(t, "file /etc/motd changed", appended.Changes[0].String())
	assert.Equal(t, 3*time.Second, appended.Waited)
	assert.Equal(t, int64(7), appended.TookSeconds)
	text := appended.Text()
	for _, line := range []string{
		"Build w2 of pool worker\n", "  state          Succeeded, ConfigAppended\n", "  how            appended: one layer with the configuration, on the OS image; no pod\n",
		"  took           7s\n", "  size           1.2 GB for AMD64; a node that has f123456789ab pulls 12 kB\n", "  signed         yes\n", "no SBOM:  [31mbroken\n",
		"  ready          NotSigned: none\n",
	} {
		assert.Contains(t, text, line)
	}
	assert.NotContains(t, text, "\x1b")

	failed := of("worker", Step{Step: "fetch", Milliseconds: 12_345, Bytes: 60_000_000, Layers: 3})
	assert.Equal(t, "w2", failed.ComparedWith, "the last that made an image")
	assert.Contains(t, failed.Do, `"layerwright logs w3"`)
	assert.Contains(t, failed.Text(), "fetch        12.3s, 60 MB in 3 layers\n")

	unknown := of("w1")
	assert.Empty(t, unknown.ComparedWith, "there is none before")
	assert.Contains(t, unknown.Strategy, "in pods")

	o.Builds = nil
	alone := of("worker-0123")
	assert.Contains(t, alone.Text(), "Image worker-0123 of pool worker, whose build is gone\n")
}

func TestStrategiesAndRemedies(t *testing.T) {
	t.Parallel()
	for want, test := range map[string]struct {
		action     mcfgv1.BuildAction
		hasContent bool
	}{
		"reused: ": {mcfgv1.BuildActionReuse, true}, "on content that was built before": {mcfgv1.BuildActionAppend, true},
		"on the OS image": {mcfgv1.BuildActionAppend, false}, "built: ": {mcfgv1.BuildActionBuild, true}, "": {"", true},
	} {
		assert.Contains(t, strategy(test.action, test.hasContent), want)
	}
	b := newBuild("w1", 1, "", "", "")
	for reason := range remedies {
		assert.NotContains(t, remedy(&b, reason), "$", reason)
	}
	assert.Contains(t, remedy(&b, "ControllerKilled"), "kubectl annotate machineosconfig worker machineconfiguration.openshift.io/rebuildImage=")
}
