package verification

import (
	"maps"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/names"
)

// Environment variables of every container of a test.
const (
	// variableImage is the image by digest, and variableDigest its digest alone.
	variableImage  = "IMAGE"
	variableDigest = "IMAGE_DIGEST"
	// variablePool and variableConfig are the names of its MachineConfigPool and MachineOSConfig.
	variablePool   = "POOL"
	variableConfig = "MACHINE_OS_CONFIG"
	// variableStream is the name of the OS image stream; empty where the image is of none.
	variableStream = "STREAM"
)

// imageItself is what a manifest writes for the image, where one is named.
const imageItself = "$(" + variableImage + ")"

// Labels by which Jobs and pods of tests are found and told apart from those of builds.
const (
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"
	// Component is the value of the label app.kubernetes.io/component of everything that tests
	// images.
	Component = "verification"
	product   = "layerwright"
)

// What containers ask for where a manifest says nothing, and who they run as: a user without
// rights, of the image's.
const (
	defaultCPU    = "100m"
	defaultMemory = "128Mi"
	unprivileged  = 65534
)

// DefaultTimeout is how long a test may take where spec.verification.timeout says nothing.
const DefaultTimeout = time.Hour

// Subject is what a test is about, and how it is to be run.
type Subject struct {
	// Image is the image, and Config the name of its MachineOSConfig.
	Image  *mcfgv1alpha1.MachineOSImage
	Config string
	// Stream is the OS image stream; empty for none.
	Stream string
	// Namespace is where the Job runs.
	Namespace string
	// PullSecret is what the image is pulled with; empty for none.
	PullSecret string
	// Timeout is how long the test may take. What the manifest says counts if it is less.
	Timeout time.Duration
	// TestHash is that of the manifest, and Attempt how many Jobs there were before for it.
	TestHash string
	Attempt  int
	// UsersAssigned is that the cluster gives pods a user, as OpenShift does: none is set then.
	UsersAssigned bool
}

// Make makes the Job of a test from its manifest, which Rule.Check has accepted. What the manifest
// says stays; defaults are for what it leaves out.
func Make(manifest *batchv1.Job, s *Subject) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: s.metadata(&manifest.ObjectMeta), Spec: *manifest.Spec.DeepCopy()}
	job.Name, job.Namespace = names.VerificationJob(s.Image.Name, s.TestHash, s.Attempt), s.Namespace
	job.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: mcfgv1alpha1.GroupVersion.String(), Kind: imageKind, Name: s.Image.Name, UID: s.Image.UID, Controller: new(true),
	}}
	spec := &job.Spec
	limit := int64(s.Timeout / time.Second)
	if spec.ActiveDeadlineSeconds == nil || *spec.ActiveDeadlineSeconds > limit {
		spec.ActiveDeadlineSeconds = &limit
	}
	if spec.BackoffLimit == nil && spec.BackoffLimitPerIndex == nil {
		spec.BackoffLimit = new(int32(0))
	}
	spec.Template.ObjectMeta = s.metadata(&manifest.Spec.Template.ObjectMeta)
	s.completePod(&spec.Template.Spec)
	return job
}

// metadata is that of the manifest as far as it is people's, with our own.
func (s *Subject) metadata(from *metav1.ObjectMeta) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Labels: maps.Clone(from.Labels), Annotations: maps.Clone(from.Annotations)}
	for key, value := range map[string]string{
		nameLabel: product, componentLabel: Component,
		mcfgv1.LabelMachineOSConfig: s.Config, mcfgv1.LabelTargetMachineConfigPool: s.Image.Spec.MachineConfigPool,
	} {
		if len(validation.IsValidLabelValue(value)) == 0 {
			metav1.SetMetaDataLabel(&meta, key, value)
		}
	}
	metav1.SetMetaDataAnnotation(&meta, mcfgv1.AnnotationMachineOSImage, s.Image.Name)
	metav1.SetMetaDataAnnotation(&meta, mcfgv1.AnnotationVerificationTest, s.TestHash)
	metav1.SetMetaDataAnnotation(&meta, mcfgv1.AnnotationVerificationAttempt, strconv.Itoa(s.Attempt))
	return meta
}

func (s *Subject) completePod(pod *corev1.PodSpec) {
	if pod.RestartPolicy == "" {
		pod.RestartPolicy = corev1.RestartPolicyNever
	}
	if pod.AutomountServiceAccountToken == nil && !hasAccount(pod) {
		pod.AutomountServiceAccountToken = new(false)
	}
	if pod.EnableServiceLinks == nil {
		pod.EnableServiceLinks = new(false)
	}
	if wanted := (corev1.LocalObjectReference{Name: s.PullSecret}); s.PullSecret != "" && !contains(pod.ImagePullSecrets, wanted) {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, wanted)
	}
	if pod.SecurityContext == nil {
		pod.SecurityContext = &corev1.PodSecurityContext{}
	}
	security := pod.SecurityContext
	if security.RunAsNonRoot == nil {
		security.RunAsNonRoot = new(true)
	}
	if security.RunAsUser == nil && *security.RunAsNonRoot && !s.UsersAssigned {
		security.RunAsUser = new(int64(unprivileged))
		if security.RunAsGroup == nil {
			security.RunAsGroup = new(int64(unprivileged))
		}
	}
	if security.SeccompProfile == nil {
		security.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	for i := range pod.InitContainers {
		s.completeContainer(&pod.InitContainers[i])
	}
	for i := range pod.Containers {
		s.completeContainer(&pod.Containers[i])
	}
	for i := range pod.Volumes {
		if image := pod.Volumes[i].Image; image != nil && image.Reference == imageItself {
			image.Reference = string(s.Image.Spec.PullSpec)
		}
	}
}

func contains(all []corev1.LocalObjectReference, wanted corev1.LocalObjectReference) bool {
	for _, one := range all {
		if one == wanted {
			return true
		}
	}
	return false
}

func (s *Subject) completeContainer(c *corev1.Container) {
	pinned := string(s.Image.Spec.PullSpec)
	if c.Image == imageItself {
		c.Image = pinned
	}
	_, digest, _ := strings.Cut(pinned, "@")
	// They come first, so that variables of the manifest can be made of them.
	c.Env = append([]corev1.EnvVar{
		{Name: variableImage, Value: pinned},
		{Name: variableDigest, Value: digest},
		{Name: variablePool, Value: s.Image.Spec.MachineConfigPool},
		{Name: variableConfig, Value: s.Config},
		{Name: variableStream, Value: s.Stream},
	}, c.Env...)
	if c.TerminationMessagePolicy == "" {
		c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}
	for name, amount := range map[corev1.ResourceName]string{corev1.ResourceCPU: defaultCPU, corev1.ResourceMemory: defaultMemory} {
		_, requested := c.Resources.Requests[name]
		_, limited := c.Resources.Limits[name]
		if requested || limited {
			continue
		}
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		c.Resources.Requests[name] = resource.MustParse(amount)
	}
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	if c.SecurityContext.AllowPrivilegeEscalation == nil {
		c.SecurityContext.AllowPrivilegeEscalation = new(false)
	}
	if c.SecurityContext.Capabilities == nil {
		c.SecurityContext.Capabilities = &corev1.Capabilities{}
	}
	if c.SecurityContext.Capabilities.Drop == nil {
		c.SecurityContext.Capabilities.Drop = []corev1.Capability{"ALL"}
	}
}
