package plan_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/plan"
)

// digest is an image of one repeated character, as a field of the API.
func digest(digit string) mcfgv1.ImageDigestFormat {
	return mcfgv1.ImageDigestFormat(nodestest.Pinned(digit))
}

// wanted is a pool whose newest image 2, of configuration b on the base 0, may be rolled out.
func wanted() *plan.Wanted {
	config := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	config.Spec.OSImageURL = nodestest.Pinned("0")
	config.Spec.BaseOSExtensionsContainerImage = nodestest.Pinned("e")
	layer := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: "layer"}}
	layer.Status.CurrentImagePullSpec = digest("2")
	return &plan.Wanted{
		Pool: pool("worker"), Config: config, Layer: layer,
		Images:        []mcfgv1alpha1.MachineOSImage{image("old", "1", "a"), image("new", "2", "b")},
		Architectures: []mcfgv1.Architecture{mcfgv1.ArchitectureAMD64},
	}
}

// image is a MachineOSImage that is Ready.
func image(name, digit, config string) mcfgv1alpha1.MachineOSImage {
	i := mcfgv1alpha1.MachineOSImage{ObjectMeta: metav1.ObjectMeta{Name: name}}
	i.Spec = mcfgv1alpha1.MachineOSImageSpec{
		PullSpec: digest(digit), BaseOSImagePullSpec: digest("0"), RenderedMachineConfig: config, MachineConfigPool: "worker",
	}
	i.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: mcfgv1alpha1.ReasonReady}}
	return i
}

// kubelets has nodes that run image 2 with two kubelets, the first of the API server's version.
func kubelets(kubelet, server string) func(*plan.Wanted) {
	return func(w *plan.Wanted) {
		w.APIServer, w.Kubelets = server, map[mcfgv1.ImageDigestFormat][]string{digest("2"): {server, kubelet}}
	}
}

func TestGate(t *testing.T) {
	t.Parallel()
	newest := nodes.Target{Config: "b", Image: nodestest.Pinned("2")}
	older := nodes.Target{Config: "a", Image: nodestest.Pinned("1")}
	tests := map[string]struct {
		change func(*plan.Wanted)
		want   plan.Verdict
	}{
		"the newest image": {
			change: func(*plan.Wanted) {},
			want:   plan.Verdict{Target: newest, Image: newest.Image},
		},
		"no configuration": {
			change: func(w *plan.Wanted) { w.Config = nil },
			want:   plan.Verdict{Hold: "the pool has no configuration yet"},
		},
		"no MachineOSConfig sends nodes to the stream's image": {
			change: func(w *plan.Wanted) { w.Layer = nil },
			want:   plan.Verdict{Target: nodes.Target{Config: "b"}, Image: nodestest.Pinned("0")},
		},
		"an OS image without a digest": {
			change: func(w *plan.Wanted) { w.Layer, w.Config.Spec.OSImageURL = nil, "quay.io/os/image:latest" },
			want: plan.Verdict{
				Target: nodes.Target{Config: "b"}, Image: "quay.io/os/image:latest", Failed: plan.CheckImage,
				Hold: `osImageURL "quay.io/os/image:latest" of b has no digest: nodes get images by digest only`,
			},
		},
		"no image yet": {
			change: func(w *plan.Wanted) { w.Layer.Status.CurrentImagePullSpec = "" },
			want:   plan.Verdict{Failed: plan.CheckImage, Hold: "MachineOSConfig layer has no image yet"},
		},
		"an image without its object": {
			change: func(w *plan.Wanted) { w.Images = w.Images[:1] },
			want:   plan.Verdict{Failed: plan.CheckImage, Hold: "there is no MachineOSImage of 222222222222 yet"},
		},
		"a second object of the image holds nothing": {
			change: func(w *plan.Wanted) {
				w.ImageNames = []string{"new"}
				w.Images = append([]mcfgv1alpha1.MachineOSImage{image("copy", "2", "a")}, append(w.Images, image("z", "2", "a"))...)
			},
			want: plan.Verdict{Target: newest, Image: newest.Image},
		},
		"an image of an earlier configuration": {
			change: func(w *plan.Wanted) { w.Layer.Status.CurrentImagePullSpec = digest("1") },
			want:   plan.Verdict{Failed: plan.CheckConfiguration, Hold: "waits for the image of b: the newest one is of a"},
		},
		"an image of an earlier configuration that fits": {
			change: func(w *plan.Wanted) {
				w.Layer.Status.CurrentImagePullSpec, w.Images[0].Status.RenderedMachineConfig = digest("1"), "b"
			},
			want: plan.Verdict{Target: nodes.Target{Config: "b", Image: nodestest.Pinned("1")}, Image: nodestest.Pinned("1")},
		},
		"an image that fitted a configuration before": {
			change: func(w *plan.Wanted) {
				w.Layer.Status.CurrentImagePullSpec, w.Images[0].Status.RenderedMachineConfig = digest("1"), "b-before"
			},
			want: plan.Verdict{Failed: plan.CheckConfiguration, Hold: "waits for the image of b: the newest one is of b-before"},
		},
		"an image that was made with the configuration and fits another": {
			change: func(w *plan.Wanted) { w.Images[1].Status.RenderedMachineConfig = "c" },
			want:   plan.Verdict{Failed: plan.CheckConfiguration, Hold: "waits for the image of b: the newest one is of c"},
		},
		"a fitting image that is only pushed": {
			change: func(w *plan.Wanted) {
				w.Layer.Status.CurrentImagePullSpec, w.Images[0].Status.RenderedMachineConfig = digest("1"), "b"
				w.Layer.Spec.PostBuildStrategy = mcfgv1.ImagePushOnly
			},
			want: plan.Verdict{
				Target: nodes.Target{Config: "b", Image: nodestest.Pinned("1")}, Image: nodestest.Pinned("1"),
				Hold: "spec.postBuildStrategy of MachineOSConfig layer is ImagePushOnly",
			},
		},
		"an image that the pool names, which fits the pool's": {
			change: func(w *plan.Wanted) {
				w.Pool.Spec.MachineOSImage, w.Images[0].Status.RenderedMachineConfig = "old", "b"
			},
			want: plan.Verdict{Target: nodes.Target{Config: "b", Image: older.Image}, Image: older.Image},
		},
		"an image that the pool names, with its last configuration": {
			change: func(w *plan.Wanted) {
				w.Pool.Spec.MachineOSImage, w.Images[0].Status.RenderedMachineConfig = "old", "a-2"
			},
			want: plan.Verdict{Target: nodes.Target{Config: "a-2", Image: older.Image}, Image: older.Image},
		},
		"a fitting image with extensions of another image": {
			change: func(w *plan.Wanted) {
				w.Images[1].Spec.RenderedMachineConfig, w.Images[1].Status.RenderedMachineConfig = "a", "b"
				w.Build = &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{
					Annotations: map[string]string{mcfgv1.AnnotationExtensionsImage: nodestest.Pinned("f")},
				}}
				w.Build.Status.DigestedImagePushSpec = digest("2")
			},
			want: plan.Verdict{Target: newest, Image: newest.Image},
		},
		"an image in quarantine with another configuration": {
			change: func(w *plan.Wanted) {
				w.Images[1].Status.Quarantine = &mcfgv1alpha1.ImageQuarantine{Reason: "RolloutHalted", Message: "node a failed", RenderedMachineConfig: "c"}
			},
			want: plan.Verdict{Target: newest, Image: newest.Image},
		},
		"an image in quarantine with this configuration": {
			change: func(w *plan.Wanted) {
				w.Images[1].Status.Quarantine = &mcfgv1alpha1.ImageQuarantine{Reason: "RolloutHalted", Message: "node a failed", RenderedMachineConfig: "b"}
			},
			want: plan.Verdict{
				Target: newest, Image: newest.Image, Failed: plan.CheckReady,
				Hold: "MachineOSImage new is in quarantine: RolloutHalted: node a failed",
			},
		},
		"an image that is not signed": {
			change: func(w *plan.Wanted) {
				w.Images[1].Status.Conditions[0] = metav1.Condition{
					Type: "Ready", Status: metav1.ConditionFalse, Reason: mcfgv1alpha1.ReasonNotSigned, Message: "no signature by key k",
				}
			},
			want: plan.Verdict{
				Target: newest, Image: newest.Image, Failed: plan.CheckReady,
				Hold: "MachineOSImage new is not ready: NotSigned: no signature by key k",
			},
		},
		"an image that no one has looked at": {
			change: func(w *plan.Wanted) { w.Images[1].Status.Conditions = nil },
			want: plan.Verdict{
				Target: newest, Image: newest.Image, Failed: plan.CheckReady,
				Hold: "MachineOSImage new is not ready: it has not been looked at yet",
			},
		},
		"an image in quarantine that an old spec names": {
			change: func(w *plan.Wanted) {
				w.Pool.Spec.MachineOSImage = "old"
				w.Images[0].Status.Quarantine = &mcfgv1alpha1.ImageQuarantine{Reason: "RolloutHalted", Message: "node a failed"}
			},
			want: plan.Verdict{
				Target: older, Image: older.Image, Failed: plan.CheckReady,
				Hold: "MachineOSImage old is in quarantine: RolloutHalted: node a failed",
			},
		},
		"an image in quarantine": {
			change: func(w *plan.Wanted) {
				w.Images[1].Status.Quarantine = &mcfgv1alpha1.ImageQuarantine{Reason: "RolloutHalted", Message: "node a failed"}
			},
			want: plan.Verdict{
				Target: newest, Image: newest.Image, Failed: plan.CheckReady,
				Hold: "MachineOSImage new is in quarantine: RolloutHalted: node a failed",
			},
		},
		"an image that is being deleted": {
			change: func(w *plan.Wanted) { w.Images[1].DeletionTimestamp = &metav1.Time{Time: t0} },
			want: plan.Verdict{
				Target: newest, Image: newest.Image, Failed: plan.CheckReady, Hold: "MachineOSImage new is being deleted",
			},
		},
		"an image on another base": {
			change: func(w *plan.Wanted) { w.Images[1].Spec.BaseOSImagePullSpec = digest("9") },
			want: plan.Verdict{
				Target: newest, Image: newest.Image, Failed: plan.CheckBaseImage,
				Hold: "MachineOSImage new is built on 999999999999, but the pool uses 000000000000",
			},
		},
		"another base that the MachineOSConfig names": {
			change: func(w *plan.Wanted) {
				w.Images[1].Spec.BaseOSImagePullSpec, w.Layer.Spec.BaseOSImagePullSpec = digest("9"), "quay.io/own/os:1"
			},
			want: plan.Verdict{Target: newest, Image: newest.Image},
		},
		"extensions of another image": {
			change: func(w *plan.Wanted) {
				w.Build = &mcfgv1.MachineOSBuild{ObjectMeta: metav1.ObjectMeta{
					Annotations: map[string]string{mcfgv1.AnnotationExtensionsImage: nodestest.Pinned("f")},
				}}
				w.Build.Status.DigestedImagePushSpec = digest("2")
			},
			want: plan.Verdict{
				Target: newest, Image: newest.Image, Failed: plan.CheckExtensions,
				Hold: "MachineOSImage new has extensions of another image than the pool's stream: wait for the next build, or have it built again with " +
					"the annotation machineconfiguration.openshift.io/rebuildImage of the MachineOSConfig",
			},
		},
		"no image for an architecture": {
			change: func(w *plan.Wanted) {
				w.Images[1].Status.Architectures = []mcfgv1alpha1.ImageArchitecture{{Architecture: mcfgv1.ArchitectureAMD64}}
				w.Architectures = append(w.Architectures, mcfgv1.ArchitectureARM64, mcfgv1.ArchitectureARM64)
			},
			want: plan.Verdict{
				Target: newest, Image: newest.Image, Failed: plan.CheckArchitectures,
				Hold: "MachineOSImage new has no image for ARM64, which nodes of the pool are of",
			},
		},
		"an image that is only pushed": {
			change: func(w *plan.Wanted) { w.Layer.Spec.PostBuildStrategy = mcfgv1.ImagePushOnly },
			want: plan.Verdict{
				Target: newest, Image: newest.Image, Hold: "spec.postBuildStrategy of MachineOSConfig layer is ImagePushOnly",
			},
		},
		"noRollout": {
			change: func(w *plan.Wanted) { w.Layer.Annotations = map[string]string{mcfgv1.AnnotationNoRollout: ""} },
			want: plan.Verdict{
				Target: newest, Image: newest.Image,
				Hold: "MachineOSConfig layer has the annotation machineconfiguration.openshift.io/noRollout",
			},
		},
		"an image whose kubelet is newer than the API server": {
			change: kubelets("v1.35.0", "v1.34.9"),
			want: plan.Verdict{
				Target: newest, Image: newest.Image, Failed: plan.CheckKubeletVersion,
				Hold: "MachineOSImage new has kubelet v1.35.0, which is newer than the API server's v1.34.9",
			},
		},
		"an image whose kubelet is too old for the API server": {
			change: kubelets("v1.30.14", "v1.34.0-rc.1+abc"),
			want: plan.Verdict{
				Target: newest, Image: newest.Image, Failed: plan.CheckKubeletVersion,
				Hold: "MachineOSImage new has kubelet v1.30.14, which is more than 3 minor versions older than the API server's v1.34.0-rc.1+abc",
			},
		},
		"an image whose kubelet is as old as is supported": {
			change: kubelets("v1.31.0", "v1.34.2"),
			want:   plan.Verdict{Target: newest, Image: newest.Image},
		},
		"a newer patch of the same kubelet version": {
			change: kubelets("v1.34.3", "v1.34.2"),
			want:   plan.Verdict{Target: newest, Image: newest.Image},
		},
		"a kubelet of which no one knows the version": {
			change: kubelets("", "v1.34.2"),
			want:   plan.Verdict{Target: newest, Image: newest.Image},
		},
		"an API server of which no one knows the version": {
			change: kubelets("v1.35.0", ""),
			want:   plan.Verdict{Target: newest, Image: newest.Image},
		},
		"a kubelet of another image holds nothing back": {
			change: func(w *plan.Wanted) {
				w.APIServer, w.Kubelets = "v1.34.2", map[mcfgv1.ImageDigestFormat][]string{digest("1"): {"v1.35.0"}}
			},
			want: plan.Verdict{Target: newest, Image: newest.Image},
		},
		"an older image that the pool names, with its configuration": {
			change: func(w *plan.Wanted) { w.Pool.Spec.MachineOSImage = "old" },
			want:   plan.Verdict{Target: older, Image: older.Image},
		},
		"an image that the pool names is rolled out in push mode": {
			change: func(w *plan.Wanted) {
				w.Pool.Spec.MachineOSImage, w.Layer.Spec.PostBuildStrategy = "new", mcfgv1.ImagePushOnly
			},
			want: plan.Verdict{Target: newest, Image: newest.Image},
		},
		"an image without a configuration gets the pool's": {
			change: func(w *plan.Wanted) {
				w.Pool.Spec.MachineOSImage, w.Images[1].Spec.RenderedMachineConfig = "new", ""
			},
			want: plan.Verdict{Target: newest, Image: newest.Image},
		},
		"an image that does not exist": {
			change: func(w *plan.Wanted) { w.Pool.Spec.MachineOSImage = "gone" },
			want: plan.Verdict{
				Failed: plan.CheckImage, Hold: `spec.machineOSImage names the MachineOSImage "gone", which does not exist`,
			},
		},
		"an image of another pool": {
			change: func(w *plan.Wanted) {
				w.Pool.Spec.MachineOSImage, w.Images[0].Spec.MachineConfigPool = "old", "infra"
			},
			want: plan.Verdict{
				Failed: plan.CheckImage, Hold: `spec.machineOSImage names the MachineOSImage "old", which is for pool infra`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := wanted()
			tt.change(w)
			got := plan.Gate(*w)
			got.Found = nil
			assert.Equal(t, tt.want, got)
		})
	}
}
