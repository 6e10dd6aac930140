package testjobs

import (
	"maps"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Labels by which Jobs and pods of tests are found and told apart from those of builds.
const (
	nameLabel = "app.kubernetes.io/name"
	product   = "layerwright"
	// ComponentLabel has the value Component on everything that tests.
	ComponentLabel = "app.kubernetes.io/component"
	Component      = "verification"
)

// KindPipelineRun is the kind of a Job that stands for a PipelineRun of Tekton.
const KindPipelineRun = "PipelineRun"

// What containers ask for where a manifest says nothing, and who they run as: a user without
// rights, of the image's.
const (
	defaultCPU    = "100m"
	defaultMemory = "128Mi"
	unprivileged  = 65534
)

// Run is one run of a test.
type Run struct {
	// Name and Namespace are those of the Job, and Owner is what it goes with.
	Name, Namespace string
	Owner           metav1.OwnerReference
	// Labels and Annotations are given to the Job and its pods. What is no value of a label is left
	// out.
	Labels, Annotations map[string]string
	// TestHash is that of the manifest, and Attempt how many Jobs there were before for it.
	TestHash string
	Attempt  int
	// Variables are given to all containers.
	Variables []corev1.EnvVar
	// Image is what Placeholder stands for in the manifest, where the caller has one.
	Image, Placeholder string
	// PullSecret is what images are pulled with; empty for none.
	PullSecret string
	// UsersAssigned reports whether the cluster gives pods a user, as OpenShift does: none is set
	// then.
	UsersAssigned bool
	// Node is the node that the pods run on, whatever its taints; empty where the scheduler
	// chooses one.
	Node string
}

// Make makes the Job of a run from the manifest of a test, which Rule.Check has accepted. What the
// manifest says stays; defaults are for what it leaves out.
func Make(manifest *batchv1.Job, r *Run) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: r.metadata(&manifest.ObjectMeta), Spec: *manifest.Spec.DeepCopy()}
	job.Name, job.Namespace, job.OwnerReferences = r.Name, r.Namespace, []metav1.OwnerReference{r.Owner}
	spec := &job.Spec
	if spec.BackoffLimit == nil && spec.BackoffLimitPerIndex == nil {
		spec.BackoffLimit = new(int32(0))
	}
	spec.Template.ObjectMeta = r.metadata(&manifest.Spec.Template.ObjectMeta)
	r.completePod(&spec.Template.Spec)
	return job
}

// Limit brings a number of seconds, which may be missing, to at most a duration.
func Limit(seconds **int64, most time.Duration) {
	if limit := int64(most / time.Second); *seconds == nil || **seconds > limit {
		*seconds = &limit
	}
}

// metadata is that of the manifest as far as it is people's, with our own.
func (r *Run) metadata(from *metav1.ObjectMeta) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Labels: maps.Clone(from.Labels), Annotations: maps.Clone(from.Annotations)}
	metav1.SetMetaDataLabel(&meta, nameLabel, product)
	metav1.SetMetaDataLabel(&meta, ComponentLabel, Component)
	for key, value := range r.Labels {
		if len(validation.IsValidLabelValue(value)) == 0 {
			metav1.SetMetaDataLabel(&meta, key, value)
		}
	}
	for key, value := range r.Annotations {
		metav1.SetMetaDataAnnotation(&meta, key, value)
	}
	metav1.SetMetaDataAnnotation(&meta, mcfgv1.AnnotationVerificationTest, r.TestHash)
	metav1.SetMetaDataAnnotation(&meta, mcfgv1.AnnotationVerificationAttempt, strconv.Itoa(r.Attempt))
	return meta
}

func (r *Run) completePod(pod *corev1.PodSpec) {
	if pod.RestartPolicy == "" {
		pod.RestartPolicy = corev1.RestartPolicyNever
	}
	if pod.AutomountServiceAccountToken == nil && !hasAccount(pod) {
		pod.AutomountServiceAccountToken = new(false)
	}
	if pod.EnableServiceLinks == nil {
		pod.EnableServiceLinks = new(false)
	}
	if wanted := (corev1.LocalObjectReference{Name: r.PullSecret}); r.PullSecret != "" && !slices.Contains(pod.ImagePullSecrets, wanted) {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, wanted)
	}
	r.pin(pod)
	r.secure(pod)
	for i := range pod.InitContainers {
		r.completeContainer(&pod.InitContainers[i])
	}
	for i := range pod.Containers {
		r.completeContainer(&pod.Containers[i])
	}
	for i := range pod.Volumes {
		if image := pod.Volumes[i].Image; image != nil && r.Placeholder != "" && image.Reference == r.Placeholder {
			image.Reference = r.Image
		}
	}
}

// pin has the scheduler put the pod on the node, as it does for DaemonSets.
func (r *Run) pin(pod *corev1.PodSpec) {
	if r.Node == "" {
		return
	}
	pod.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{r.Node}},
		}}},
	}}}
	pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
}

// secure gives the pod what the pod security level restricted asks for.
func (r *Run) secure(pod *corev1.PodSpec) {
	if pod.SecurityContext == nil {
		pod.SecurityContext = &corev1.PodSecurityContext{}
	}
	security := pod.SecurityContext
	if security.RunAsNonRoot == nil {
		security.RunAsNonRoot = new(true)
	}
	if security.RunAsUser == nil && *security.RunAsNonRoot && !r.UsersAssigned {
		security.RunAsUser = new(int64(unprivileged))
		if security.RunAsGroup == nil {
			security.RunAsGroup = new(int64(unprivileged))
		}
	}
	if security.SeccompProfile == nil {
		security.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
}

func (r *Run) completeContainer(c *corev1.Container) {
	if r.Placeholder != "" && c.Image == r.Placeholder {
		c.Image = r.Image
	}
	// They come first, so that variables of the manifest can be made of them.
	c.Env = slices.Concat(r.Variables, c.Env)
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
