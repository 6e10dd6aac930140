//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// verified is a pool whose images have to pass a test.
type verified struct{ *layered }

// verifying makes a pool whose images kubelets can pull, and asks for an image that the test in the
// ConfigMap of the pool's name is run on.
func verifying(t *testing.T, b *builds, name string) verified {
	t.Helper()
	p := b.unasked(t, name)
	p.ask(func(c *mcfgv1.MachineOSConfig) {
		c.Spec.BaseImagePullSecret.Name, c.Spec.RenderedImagePushSecret.Name = stack.PullSecret, stack.PushSecret
		c.Spec.CurrentImagePullSecret = &mcfgv1.ImageSecretObjectReference{Name: stack.PullSecret}
		c.Spec.Verification = &mcfgv1.ImageVerification{Type: mcfgv1.JobBuilder, Job: &mcfgv1.ConfigMapKeyReference{Name: name}}
	})
	return verified{p}
}

// script is the manifest of a test that runs a script in the image itself, with what its pod says
// besides.
func script(text, pod string) string {
	return fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n%s      terminationGracePeriodSeconds: 1\n"+
		"      containers:\n        - name: image\n          image: $(IMAGE)\n          command: [sh, -c, %q]\n", pod, text)
}

// test writes the manifest of the test.
func (v verified) test(manifest string) {
	v.t.Helper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: stack.Namespace, Name: v.name}, Data: map[string]string{"job.yaml": manifest}}
	err := v.Create(v.t.Context(), configMap)
	if apierrors.IsAlreadyExists(err) {
		require.NoError(v.t, v.Update(v.t.Context(), configMap))
		return
	}
	require.NoError(v.t, err)
	v.t.Cleanup(func() {
		require.NoError(v.t, client.IgnoreNotFound(v.Delete(context.WithoutCancel(v.t.Context()), configMap)))
	})
}

// verdict waits until the image says so: "<status> <reason> <message>".
func (v verified) verdict(prefix string) *mcfgv1alpha1.MachineOSImage {
	v.t.Helper()
	var found mcfgv1alpha1.MachineOSImage
	v.eventually(func(t *assert.CollectT) {
		images := v.machineOSImages(v.t.Context(), t)
		require.Len(t, images, 1)
		found = images[0]
		text := conditionText(found.Status.Conditions, mcfgv1alpha1.ImageVerified)
		require.True(t, strings.HasPrefix(text, prefix), "%q, not %q", text, prefix)
	})
	return &found
}

func (v verified) job(image *mcfgv1alpha1.MachineOSImage) *batchv1.Job {
	v.t.Helper()
	require.NotNil(v.t, image.Status.Verification)
	job, err := v.clients.BatchV1().Jobs(stack.Namespace).Get(v.t.Context(), image.Status.Verification.Job, metav1.GetOptions{})
	require.NoError(v.t, err)
	return job
}

// tells waits until one event with the reason is about the image, and one about its
// MachineOSConfig.
func (v verified) tells(reason string, image *mcfgv1alpha1.MachineOSImage) {
	v.t.Helper()
	v.eventually(func(t *assert.CollectT) {
		about := map[string]int{}
		for _, e := range v.events(t) {
			if e.Reason == reason {
				about[e.Regarding.Kind+" "+e.Regarding.Name]++
			}
		}
		assert.Equal(t, 1, about["MachineOSImage "+image.Name])
		assert.Equal(t, 1, about["MachineOSConfig "+v.name])
	})
}

// testImagesAreVerified has tests of administrators run on images, by a real kubelet, with the
// image itself as their container. Time limits and manifests that are wrong need no kubelet:
// package builder/verification tests them.
func testImagesAreVerified(t *testing.T) {
	b := newBuilds(t)
	b.base, b.host = tinyImage(t), statusOf(t).Registry
	t.Run("killed", func(t *testing.T) { testVerifiedKilled(t, verifying(t, b, "verify-killed")) })
	for name, run := range map[string]func(t *testing.T, v verified){
		"passes": testVerifiedPasses, "fails": testVerifiedFails, "refused": testVerifiedRefused,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, verifying(t, b, "verify-"+name))
		})
	}
}

// follows demands that the pool's tag, which people follow, is on an image.
func (v verified) follows(image *mcfgv1alpha1.MachineOSImage, why string) {
	v.t.Helper()
	v.eventually(func(t *assert.CollectT) {
		require.NotNil(t, v.config(t).Status.PoolTag)
		require.Equal(t, image.Spec.PullSpec, v.config(t).Status.PoolTag.PullSpec, why)
	})
	require.Equal(v.t, image.Spec.PullSpec.Digest(), v.tags()[v.name], why)
}

// verdictOfNext waits until an image that came after another one says so: "<status> <reason>
// <message>".
func (v verified) verdictOfNext(before *mcfgv1alpha1.MachineOSImage, prefix string) *mcfgv1alpha1.MachineOSImage {
	v.t.Helper()
	var found mcfgv1alpha1.MachineOSImage
	v.eventually(func(t *assert.CollectT) {
		images := v.machineOSImages(v.t.Context(), t)
		require.Len(t, images, 2)
		found = images[0]
		if found.Name == before.Name {
			found = images[1]
		}
		text := conditionText(found.Status.Conditions, mcfgv1alpha1.ImageVerified)
		require.True(t, strings.HasPrefix(text, prefix), "%q, not %q", text, prefix)
	})
	return &found
}

// testVerifiedPasses begins without the ConfigMap. Only what passed is for nodes, and has the
// pool's tag.
func testVerifiedPasses(t *testing.T, v verified) {
	t.Helper()
	v.says(status.Ready, "Unknown WaitingForConfigMap the image of build ")
	assert.Empty(t, v.config(t).Status.CurrentImagePullSpec)
	assert.NotContains(t, v.tags(), v.name)
	v.test(script(`test "$(cat /etc/motd)" = one && test -e /usr/lib/os-release && id -u > /dev/termination-log && ! test -e /var/run/secrets/kubernetes.io`, ""))
	image := v.verdict("True Verified")
	v.says(status.Ready, "True Succeeded")
	assert.Equal(t, image.Spec.PullSpec, v.config(t).Status.CurrentImagePullSpec)
	result := image.Status.Verification
	assert.Equal(t, "65534", result.Message, "no one runs it")
	assert.Equal(t, new(int32(0)), result.ExitCode)
	assert.Equal(t, string(image.Spec.PullSpec), v.job(image).Spec.Template.Spec.Containers[0].Image)
	v.tells("ImageVerified", image)
	v.follows(image, "it was verified")

	v.test(script("sleep 600", ""))
	v.write("two")
	v.verdictOfNext(image, "False VerificationRunning")
	v.says(status.Reconciling, "True VerificationRunning")
	v.follows(image, "the next one is being tested")
	v.test(script("exit 4", ""))
	v.verdictOfNext(image, "False VerificationFailed")
	v.says(status.Stalled, "True VerificationFailed")
	v.follows(image, "the next one failed")
	v.test(script("true", ""))
	v.follows(v.verdictOfNext(image, "True Verified"), "the test was mended")
}

// testVerifiedFails is run again when its Job is deleted, and when the test is mended.
func testVerifiedFails(t *testing.T, v verified) {
	t.Helper()
	v.test(script("echo first line; echo no os-release; exit 3", ""))
	image := v.verdict("False VerificationFailed Job ")
	result := image.Status.Verification
	assert.Equal(t, "image", result.Container)
	assert.Equal(t, new(int32(3)), result.ExitCode)
	assert.Equal(t, "first line; no os-release", result.Message, "the end of its output")
	v.says(status.Stalled, "True VerificationFailed the image of build ")
	assert.Contains(t, conditionText(v.config(t).Status.Conditions, status.Ready), "ended with exit code 3: first line; no os-release; fix the image's inputs or the test")
	assert.Empty(t, v.config(t).Status.CurrentImagePullSpec)
	v.eventually(func(t *assert.CollectT) {
		pool := &mcfgv1.MachineConfigPool{}
		require.NoError(t, v.Get(v.t.Context(), client.ObjectKey{Name: v.name}, pool))
		require.Contains(t, conditionText(pool.GetConditions(), string(mcfgv1.PoolImageBuildDegraded)), "True VerificationFailed Image built for pool "+v.name+" is not verified")
	})

	first := v.job(image)
	background := metav1.DeletePropagationBackground
	require.NoError(t, v.clients.BatchV1().Jobs(stack.Namespace).Delete(t.Context(), first.Name, metav1.DeleteOptions{PropagationPolicy: &background}))
	v.eventually(func(t *assert.CollectT) {
		again, err := v.clients.BatchV1().Jobs(stack.Namespace).Get(v.t.Context(), first.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.NotEqual(t, first.UID, again.UID, "a person had it run again")
	})
	v.verdict("False VerificationFailed")
	v.test(script("true", ""))
	v.verdict("True Verified")
	v.says(status.Ready, "True Succeeded")
}

// testVerifiedRefused asks for what pods of the namespace may not be: the condition has the API
// server's words.
func testVerifiedRefused(t *testing.T, v verified) {
	t.Helper()
	v.test(script("true", "      securityContext: {runAsUser: 0, runAsNonRoot: false}\n"))
	v.eventually(func(t *assert.CollectT) {
		text := conditionText(v.config(t).Status.Conditions, status.Reconciling)
		require.Contains(t, text, "VerificationRunning")
		require.Contains(t, text, "its pod is refused: ")
		require.Contains(t, text, "only build pods run as root or without a seccomp profile")
	})
}

// testVerifiedKilled kills the controller while a test runs: the one that comes after it goes on
// with the same Job.
func testVerifiedKilled(t *testing.T, v verified) {
	t.Helper()
	v.test(script("sleep 10; echo survived > /dev/termination-log", ""))
	var job *batchv1.Job
	v.eventually(func(t *assert.CollectT) {
		images := v.machineOSImages(v.t.Context(), t)
		require.Len(t, images, 1)
		require.NotNil(t, images[0].Status.Verification)
		require.NotNil(t, images[0].Status.Verification.StartTime, "it runs")
		job = v.job(&images[0])
	})
	signal(t, controllerPod(t), syscall.SIGKILL)
	image := v.verdict("True Verified")
	assert.Equal(t, "survived", image.Status.Verification.Message)
	assert.Equal(t, job.UID, v.job(image).UID)
	v.says(status.Ready, "True Succeeded")
	v.tells("VerificationStarted", image)
}
