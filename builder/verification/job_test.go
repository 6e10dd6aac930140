package verification

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/testjobs"
)

const (
	digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	pinned = "registry.example.com/os/worker@" + digest
)

func testSubject() *Subject {
	return &Subject{
		Image: &mcfgv1alpha1.MachineOSImage{
			ObjectMeta: metav1.ObjectMeta{Name: "worker-aaaa", UID: "1"},
			Spec:       mcfgv1alpha1.MachineOSImageSpec{PullSpec: pinned, MachineConfigPool: "worker"},
		},
		Config: "worker", Stream: "rhel9", Namespace: "layerwright", PullSecret: "pull", Timeout: time.Hour, TestHash: "0123456789abcdef", Attempt: 1,
	}
}

// manifest is a Job that may run, with a change.
func manifest(changes ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{}
	job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "test", Image: imageItself, Command: []string{"true"}}}
	for _, change := range changes {
		change(job)
	}
	return job
}

func TestMake(t *testing.T) {
	t.Parallel()
	job := Make(manifest(func(j *batchv1.Job) { j.Name, j.Labels = "theirs", map[string]string{"app": "x"} }), testSubject())
	assert.Equal(t, "verify-worker-aaaa-01234567-1", job.Name)
	assert.Equal(t, "layerwright", job.Namespace)
	assert.Equal(t, map[string]string{
		"app": "x", "app.kubernetes.io/name": "layerwright", testjobs.ComponentLabel: "verification",
		mcfgv1.LabelMachineOSConfig: "worker", mcfgv1.LabelTargetMachineConfigPool: "worker",
	}, job.Labels)
	assert.NotContains(t, job.Labels, mcfgv1.LabelMachineOSBuild, "it is none of a build's")
	assert.Equal(t, map[string]string{
		mcfgv1.AnnotationMachineOSImage: "worker-aaaa", mcfgv1.AnnotationVerificationTest: "0123456789abcdef", mcfgv1.AnnotationVerificationAttempt: "1",
	}, job.Annotations)
	assert.Equal(t, job.Annotations, job.Spec.Template.Annotations)
	assert.True(t, metav1.IsControlledBy(job, testSubject().Image))
	assert.Equal(t, new(int64(3600)), job.Spec.ActiveDeadlineSeconds)
	assert.Equal(t, new(int32(0)), job.Spec.BackoffLimit)
	pod := job.Spec.Template.Spec
	assert.Equal(t, corev1.RestartPolicyNever, pod.RestartPolicy)
	assert.Equal(t, new(false), pod.AutomountServiceAccountToken)
	assert.Equal(t, []corev1.LocalObjectReference{{Name: "pull"}}, pod.ImagePullSecrets)
	assert.Equal(t, &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(65534)), RunAsGroup: new(int64(65534)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}, pod.SecurityContext)
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0]
	assert.Equal(t, pinned, c.Image, "the image itself runs")
	assert.Equal(t, []corev1.EnvVar{
		{Name: "IMAGE", Value: pinned},
		{Name: "IMAGE_DIGEST", Value: digest},
		{Name: "POOL", Value: "worker"},
		{Name: "MACHINE_OS_CONFIG", Value: "worker"},
		{Name: "STREAM", Value: "rhel9"},
	}, c.Env)
	assert.Equal(t, corev1.TerminationMessageFallbackToLogsOnError, c.TerminationMessagePolicy)
	assert.Equal(t, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}, c.Resources.Requests)
	assert.Equal(t, &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}, c.SecurityContext)
}

func TestManifestSettingsAreKept(t *testing.T) {
	t.Parallel()
	theirs := manifest(func(j *batchv1.Job) {
		j.Spec.ActiveDeadlineSeconds, j.Spec.BackoffLimit = new(int64(60)), new(int32(2))
		pod := &j.Spec.Template.Spec
		pod.RestartPolicy, pod.ServiceAccountName = corev1.RestartPolicyOnFailure, "verification-reader"
		pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}, {Name: "verification-registry"}}
		pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(5)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost}}
		pod.Volumes = []corev1.Volume{
			{Name: "root", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: imageItself}}},
			{Name: "other", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "other"}}},
		}
		pod.InitContainers = []corev1.Container{{Name: "first", Image: "tools"}}
		c := &pod.Containers[0]
		c.Image, c.TerminationMessagePolicy = "tools", corev1.TerminationMessageReadFile
		c.Env = []corev1.EnvVar{{Name: "MINE", Value: "$(IMAGE)"}}
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		c.SecurityContext = &corev1.SecurityContext{ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"CHOWN"}}}
	})
	before := theirs.DeepCopy()
	job := Make(theirs, testSubject())
	assert.Equal(t, before, theirs, "the manifest is only read")
	assert.Equal(t, new(int64(60)), job.Spec.ActiveDeadlineSeconds, "the smaller one")
	assert.Equal(t, new(int32(2)), job.Spec.BackoffLimit)
	pod := job.Spec.Template.Spec
	assert.Equal(t, corev1.RestartPolicyOnFailure, pod.RestartPolicy)
	assert.Nil(t, pod.AutomountServiceAccountToken, "a named account gives its token")
	assert.Equal(t, before.Spec.Template.Spec.ImagePullSecrets, pod.ImagePullSecrets)
	assert.Equal(t, int64(5), *pod.SecurityContext.RunAsUser)
	assert.Equal(t, corev1.SeccompProfileTypeLocalhost, pod.SecurityContext.SeccompProfile.Type)
	assert.Equal(t, pinned, pod.Volumes[0].Image.Reference)
	assert.Equal(t, "other", pod.Volumes[1].Image.Reference)
	assert.Len(t, pod.InitContainers[0].Env, 5)
	c := pod.Containers[0]
	assert.Equal(t, "tools", c.Image)
	assert.Equal(t, corev1.EnvVar{Name: "MINE", Value: "$(IMAGE)"}, c.Env[5], "behind those that it is made of")
	assert.Equal(t, corev1.TerminationMessageReadFile, c.TerminationMessagePolicy)
	assert.Equal(t, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}, c.Resources.Requests, "a limit is a request")
	assert.Equal(t, []corev1.Capability{"CHOWN"}, c.SecurityContext.Capabilities.Drop)
	assert.Equal(t, new(true), c.SecurityContext.ReadOnlyRootFilesystem)
}

func TestWhereTheClusterGivesUsers(t *testing.T) {
	t.Parallel()
	s := testSubject()
	s.UsersAssigned, s.PullSecret, s.Timeout = true, "", 90*time.Second
	job := Make(manifest(func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = new(int64(91)) }), s)
	assert.Nil(t, job.Spec.Template.Spec.SecurityContext.RunAsUser)
	assert.Equal(t, new(true), job.Spec.Template.Spec.SecurityContext.RunAsNonRoot)
	assert.Empty(t, job.Spec.Template.Spec.ImagePullSecrets)
	assert.Equal(t, new(int64(90)), job.Spec.ActiveDeadlineSeconds)
}

func TestLongNamesFit(t *testing.T) {
	t.Parallel()
	s := testSubject()
	s.Config = strings.Repeat("c", 200)
	s.Image.Name = strings.Repeat("i", 253)
	job := Make(manifest(), s)
	assert.LessOrEqual(t, len(job.Name), 63)
	assert.NotContains(t, job.Labels, mcfgv1.LabelMachineOSConfig, "no value of a label")
	assert.Equal(t, s.Image.Name, job.Annotations[mcfgv1.AnnotationMachineOSImage])
}

// A node may say more about the end of a pod than status has room for.
func TestResultsFitStatus(t *testing.T) {
	t.Parallel()
	s := &scope{image: &mcfgv1alpha1.MachineOSImage{}}
	job := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}}}
	pods := []corev1.Pod{{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: strings.Repeat("x", 2*testjobs.MaxMessage)}}}
	o := testjobs.Observe(job, pods, nil)
	require.True(t, o.IsInterrupted())
	assert.LessOrEqual(t, len(resultOf(s, job, &o).Message), testjobs.MaxMessage)
}
