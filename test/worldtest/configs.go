package worldtest

import (
	"fmt"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
)

// With is the rendered MachineConfig of the content that the pool began with, and more of it.
func (w *World) With(suffix, files, users string, change ...func(*mcfgv1.MachineConfig)) *mcfgv1.MachineConfig {
	mc := w.Rendered("worker", suffix, "/etc/motd", "one")
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[
		{"path":"/etc/motd","contents":{"source":"data:,one"}}%s]},"passwd":{"users":[%s]}}`, files, users)
	for _, c := range change {
		c(mc)
	}
	return mc
}

// Change gives the pool a rendered MachineConfig.
func (w *World) Change(mc *mcfgv1.MachineConfig) {
	w.T.Helper()
	w.Add(mc)
	w.Use("worker", mc.Name)
}

// PoolTagPath is where the tag of the pool is in the registry.
const PoolTagPath = "/v2/host/os/manifests/worker"

// PoolTag is the digest that the pool's tag stands for; empty where there is none.
func (w *World) PoolTag() string { return w.Registry.Tags(w.T, "host/os")["worker"] }

// Newest is the image of the wanted build.
func (w *World) Newest() *mcfgv1alpha1.MachineOSImage {
	w.T.Helper()
	build := Read(w, &mcfgv1.MachineOSBuild{}, w.OSConfig("worker").Status.MachineOSBuild.Name)
	for _, image := range w.Images() {
		if image.Spec.PullSpec == build.Status.DigestedImagePushSpec {
			return &image
		}
	}
	require.Fail(w.T, "the build has no image")
	return nil
}

// Judge writes of all images that were not judged that their verification passed.
func (w *World) Judge() {
	w.T.Helper()
	for _, image := range w.Images() {
		if status.Find(image.Status.Conditions, mcfgv1alpha1.ImageVerified) == nil {
			w.Verdict(&image, metav1.ConditionTrue, mcfgv1alpha1.ReasonVerified, "")
		}
	}
}

// RequireTag demands that the pool's tag is on an image, and that the status says so.
func (w *World) RequireTag(image *mcfgv1alpha1.MachineOSImage, why string) {
	w.T.Helper()
	require.Equal(w.T, image.Spec.PullSpec.Digest(), w.PoolTag(), why)
	require.NotNil(w.T, w.OSConfig("worker").Status.PoolTag, why)
	require.Equal(w.T, image.Spec.PullSpec, w.OSConfig("worker").Status.PoolTag.PullSpec, why)
}

// Verdict writes what the newest image's verification says, as its controller does.
func (w *World) Verdict(of *mcfgv1alpha1.MachineOSImage, is metav1.ConditionStatus, reason, message string) {
	w.T.Helper()
	w.Quietly(func() error {
		image := &mcfgv1alpha1.MachineOSImage{}
		require.NoError(w.T, w.Get(w.T.Context(), client.ObjectKeyFromObject(of), image))
		before := image.DeepCopy()
		status.Set(&image.Status.Conditions, w.Clock.Now(), metav1.Condition{Type: mcfgv1alpha1.ImageVerified, Status: is, Reason: reason, Message: message})
		image.Status.Verification = &mcfgv1alpha1.ImageVerificationResult{Job: "verify-it"}
		return w.Status().Patch(w.T.Context(), image, client.MergeFrom(before))
	})
}
