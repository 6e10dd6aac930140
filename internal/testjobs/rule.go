package testjobs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/names"
)

// Rule is what a test may not do. It runs in Layerwright's namespace, where the signing key and the
// registry secrets are, and Layerwright creates it for whoever may write a ConfigMap there: what
// that person may not do by other means, the test may not do for them.
//
// So it may use secrets and service accounts only whose names say that they are for tests, and of
// volumes those that reach nothing else. It gets nothing of its node. What else pods of the
// namespace may not be, the API server says.
type Rule struct {
	// Namespace is Layerwright's.
	Namespace string
	// Reserved are secrets that are Layerwright's whatever their names: with what they are, for
	// people.
	Reserved map[string]string
	// PullSecret is the one that the image is pulled with. It may be named among imagePullSecrets,
	// where no container can read it. Empty for none.
	PullSecret string
	// Variables are the names of those that Layerwright gives every container.
	Variables []string
	// IsPinned reports whether Layerwright chooses the node that the test runs on.
	IsPinned bool
}

// Reserved are the secrets that no test may use whatever their names, with what they are: those
// that MachineOSConfigs name, and some with signing keys, of which empty names are none.
func Reserved(configs []mcfgv1.MachineOSConfig, signing ...string) map[string]string {
	reserved := map[string]string{names.GlobalPullSecret: "the cluster's pull secret"}
	for i := range configs {
		spec := &configs[i].Spec
		for _, secret := range []*mcfgv1.ImageSecretObjectReference{spec.BaseImagePullSecret, spec.CurrentImagePullSecret} {
			if secret != nil {
				reserved[secret.Name] = "a secret for pulling images"
			}
		}
		reserved[spec.RenderedImagePushSecret.Name] = "a secret for pushing images"
	}
	for _, secret := range append(signing, names.SigningKey) {
		if secret != "" {
			reserved[secret] = "the secret with the signing key"
		}
	}
	return reserved
}

// How many pods a test may have: at the same time, and that have to succeed.
const (
	maxParallelism = 10
	maxCompletions = 100
)

const nothingOfTheNode = "a test must not use its node"

// reservedKeys are labels and annotations by which objects are found.
var reservedKeys = []string{"app.kubernetes.io/name", "app.kubernetes.io/component", "app.kubernetes.io/managed-by"}

// systemPriority begins the priorities that push other pods off a node, whatever they are.
const systemPriority = "system-"

var reservedDomains = []string{"machineconfiguration.openshift.io/", "layerwright.io/"}

// Check says everything that is wrong with the manifest of a test, each with its field.
func (r Rule) Check(job *batchv1.Job) error {
	problems := r.metadata(&job.ObjectMeta, nil)
	spec := field.NewPath("spec")
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		problems = append(problems, field.Forbidden(spec.Child("suspend"), "a test that does not run has no result"))
	}
	for _, number := range []struct {
		child string
		count *int32
		most  int32
	}{
		{"completions", job.Spec.Completions, maxCompletions}, {"parallelism", job.Spec.Parallelism, maxParallelism},
	} {
		switch {
		case number.count == nil:
		case *number.count == 0:
			problems = append(problems, field.Forbidden(spec.Child(number.child), "a test that does not run has no result"))
		case *number.count > number.most:
			problems = append(problems, field.Invalid(spec.Child(number.child), *number.count,
				fmt.Sprintf("it may be %d at most: each run of the test starts so many pods", number.most)))
		}
	}
	if job.Spec.ManualSelector != nil || job.Spec.Selector != nil {
		problems = append(problems, field.Forbidden(spec.Child("selector"), "a test has no other pods than its own"))
	}
	if job.Spec.ManagedBy != nil {
		problems = append(problems, field.Forbidden(spec.Child("managedBy"), "only the built-in Job controller runs tests"))
	}
	if job.Spec.TTLSecondsAfterFinished != nil {
		problems = append(problems, field.Forbidden(spec.Child("ttlSecondsAfterFinished"), "Layerwright removes the Job of a test when nothing needs it any more"))
	}
	template := spec.Child("template")
	problems = append(problems, r.metadata(&job.Spec.Template.ObjectMeta, template)...)
	for _, key := range slices.Sorted(maps.Keys(job.Spec.Template.Labels)) {
		if !isReserved(key) {
			problems = append(problems, field.Forbidden(template.Child("metadata", "labels").Key(key),
				"Services and NetworkPolicies select pods by their labels, so those of tests are Layerwright's; the Job may have labels"))
		}
	}
	problems = append(problems, annotations(job.Spec.Template.Annotations, template.Child("metadata", "annotations"))...)
	problems = append(problems, r.pod(&job.Spec.Template.Spec, template.Child("spec"))...)
	slices.SortStableFunc(problems, func(a, b *field.Error) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Detail, b.Detail))
	})
	return problems.ToAggregate()
}

func (r Rule) metadata(meta *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	var problems field.ErrorList
	at = at.Child("metadata")
	if meta.Namespace != "" && meta.Namespace != r.Namespace {
		problems = append(problems, field.Invalid(at.Child("namespace"), meta.Namespace, fmt.Sprintf("tests run in namespace %q; leave it out", r.Namespace)))
	}
	if len(meta.OwnerReferences) > 0 {
		problems = append(problems, field.Forbidden(at.Child("ownerReferences"), "Layerwright deletes the Job with the object that it tests"))
	}
	if len(meta.Finalizers) > 0 {
		problems = append(problems, field.Forbidden(at.Child("finalizers"), "Layerwright deletes the Job with the object that it tests"))
	}
	for child, keys := range map[string]map[string]string{"labels": meta.Labels, "annotations": meta.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if isReserved(key) {
				problems = append(problems, field.Forbidden(at.Child(child).Key(key), "Layerwright writes this one itself"))
			}
		}
	}
	return problems
}

func isReserved(key string) bool {
	return slices.Contains(reservedKeys, key) ||
		slices.ContainsFunc(reservedDomains, func(domain string) bool { return strings.HasPrefix(key, domain) })
}

func (r Rule) pod(pod *corev1.PodSpec, at *field.Path) field.ErrorList {
	var problems field.ErrorList
	for name, isUsed := range map[string]bool{"hostNetwork": pod.HostNetwork, "hostPID": pod.HostPID, "hostIPC": pod.HostIPC} {
		if isUsed {
			problems = append(problems, field.Forbidden(at.Child(name), nothingOfTheNode))
		}
	}
	problems = append(problems, r.placement(pod, at)...)
	if strings.HasPrefix(pod.PriorityClassName, systemPriority) {
		problems = append(problems, field.Forbidden(at.Child("priorityClassName"), "a test must not preempt system pods"))
	}
	if pod.RuntimeClassName != nil {
		problems = append(problems, field.Forbidden(at.Child("runtimeClassName"), nothingOfTheNode+": container runtimes differ in what they give to pods"))
	}
	if len(pod.ResourceClaims) > 0 {
		problems = append(problems, field.Forbidden(at.Child("resourceClaims"), nothingOfTheNode))
	}
	if security := pod.SecurityContext; security != nil {
		at := at.Child("securityContext")
		problems = append(problems, confinement(at, security.SELinuxOptions, security.AppArmorProfile, security.WindowsOptions)...)
		problems = append(problems, seccomp(at, security.SeccompProfile)...)
		if len(security.Sysctls) > 0 {
			problems = append(problems, field.Forbidden(at.Child("sysctls"), nothingOfTheNode))
		}
	}
	problems = append(problems, accounts(pod, at)...)
	for i := range pod.ImagePullSecrets {
		if name := pod.ImagePullSecrets[i].Name; name != r.PullSecret {
			problems = append(problems, r.secret(name, at.Child("imagePullSecrets").Index(i).Child("name"))...)
		}
	}
	for i := range pod.Volumes {
		problems = append(problems, r.volume(pod, &pod.Volumes[i], at.Child("volumes").Index(i))...)
	}
	for i := range pod.InitContainers {
		problems = append(problems, r.container(&pod.InitContainers[i], at.Child("initContainers").Index(i))...)
	}
	for i := range pod.Containers {
		problems = append(problems, r.container(&pod.Containers[i], at.Child("containers").Index(i))...)
	}
	if len(pod.EphemeralContainers) > 0 {
		problems = append(problems, field.Forbidden(at.Child("ephemeralContainers"), "a Job has none"))
	}
	return problems
}

// placement refuses what chooses a node past the scheduler, or at all where Layerwright does.
func (r Rule) placement(pod *corev1.PodSpec, at *field.Path) field.ErrorList {
	if !r.IsPinned {
		if pod.NodeName == "" {
			return nil
		}
		return field.ErrorList{field.Forbidden(at.Child("nodeName"), "the scheduler chooses the node; use nodeSelector or affinity")}
	}
	var problems field.ErrorList
	for name, isUsed := range map[string]bool{
		"nodeName": pod.NodeName != "", "nodeSelector": len(pod.NodeSelector) > 0, "affinity": pod.Affinity != nil,
		"topologySpreadConstraints": len(pod.TopologySpreadConstraints) > 0, "schedulerName": pod.SchedulerName != "",
	} {
		if isUsed {
			problems = append(problems, field.Forbidden(at.Child(name), "Layerwright runs the test on the node that it checks"))
		}
	}
	return problems
}

// confinement refuses what loosens the hold that a node has on containers.
func confinement(at *field.Path, selinux *corev1.SELinuxOptions, apparmor *corev1.AppArmorProfile, windows *corev1.WindowsSecurityContextOptions) field.ErrorList {
	var problems field.ErrorList
	if selinux != nil && (selinux.Type != "" || selinux.User != "" || selinux.Role != "") {
		problems = append(problems, field.Forbidden(at.Child("seLinuxOptions"), nothingOfTheNode))
	}
	if apparmor != nil && apparmor.Type == corev1.AppArmorProfileTypeUnconfined {
		problems = append(problems, field.Forbidden(at.Child("appArmorProfile"), nothingOfTheNode))
	}
	if windows != nil && windows.HostProcess != nil && *windows.HostProcess {
		problems = append(problems, field.Forbidden(at.Child("windowsOptions", "hostProcess"), nothingOfTheNode))
	}
	return problems
}

func seccomp(at *field.Path, profile *corev1.SeccompProfile) field.ErrorList {
	if profile == nil || profile.Type != corev1.SeccompProfileTypeUnconfined {
		return nil
	}
	return field.ErrorList{field.Forbidden(at.Child("seccompProfile"), nothingOfTheNode)}
}

// accounts refuses service accounts that are not for tests: a pod may use the token of its own. The
// one that pods have without a name gives no token.
func accounts(pod *corev1.PodSpec, at *field.Path) field.ErrorList {
	var problems field.ErrorList
	for name, account := range map[string]string{"serviceAccountName": pod.ServiceAccountName, "serviceAccount": pod.DeprecatedServiceAccount} {
		if account != "" && !strings.HasPrefix(account, names.VerificationPrefix) {
			problems = append(problems, field.Invalid(at.Child(name), account, "tests may run as service accounts whose names begin with "+names.VerificationPrefix))
		}
	}
	if !hasAccount(pod) && pod.AutomountServiceAccountToken != nil && *pod.AutomountServiceAccountToken {
		problems = append(problems, field.Forbidden(at.Child("automountServiceAccountToken"), "it needs a serviceAccountName"))
	}
	return problems
}

func hasAccount(pod *corev1.PodSpec) bool {
	return pod.ServiceAccountName != "" || pod.DeprecatedServiceAccount != ""
}

// secret refuses a secret that is not for tests.
func (r Rule) secret(name string, at *field.Path) field.ErrorList {
	if what, is := r.Reserved[name]; is {
		return field.ErrorList{field.Invalid(at, name, "this is "+what+", which no test may use")}
	}
	if !strings.HasPrefix(name, names.VerificationPrefix) {
		return field.ErrorList{field.Invalid(at, name, "tests may use secrets whose names begin with "+names.VerificationPrefix)}
	}
	return nil
}

// volume accepts the kinds that are known to reach nothing of others: those that come later have to
// be looked at first.
func (r Rule) volume(pod *corev1.PodSpec, volume *corev1.Volume, at *field.Path) field.ErrorList {
	rest := volume.VolumeSource
	rest.ConfigMap, rest.EmptyDir, rest.DownwardAPI, rest.Image, rest.Secret, rest.Projected = nil, nil, nil, nil, nil, nil
	if rest != (corev1.VolumeSource{}) {
		return field.ErrorList{field.Forbidden(at, "tests may have volumes of the kinds configMap, downwardAPI, emptyDir, image, projected and secret")}
	}
	var problems field.ErrorList
	if volume.Secret != nil {
		problems = append(problems, r.secret(volume.Secret.SecretName, at.Child("secret", "secretName"))...)
	}
	if volume.Projected == nil {
		return problems
	}
	for i := range volume.Projected.Sources {
		source, place := volume.Projected.Sources[i], at.Child("projected", "sources").Index(i)
		if source.Secret != nil {
			problems = append(problems, r.secret(source.Secret.Name, place.Child("secret", "name"))...)
		}
		if source.ServiceAccountToken != nil && !hasAccount(pod) {
			problems = append(problems, field.Forbidden(place.Child("serviceAccountToken"), "it needs a serviceAccountName"))
		}
		source.Secret, source.ServiceAccountToken, source.ConfigMap, source.DownwardAPI, source.ClusterTrustBundle = nil, nil, nil, nil, nil
		if source != (corev1.VolumeProjection{}) {
			problems = append(problems, field.Forbidden(place, "tests may project clusterTrustBundle, configMap, downwardAPI, secret and serviceAccountToken"))
		}
	}
	return problems
}

func (r Rule) container(c *corev1.Container, at *field.Path) field.ErrorList {
	var problems field.ErrorList
	for i := range c.Env {
		place := at.Child("env").Index(i)
		if slices.Contains(r.Variables, c.Env[i].Name) {
			problems = append(problems, field.Invalid(place.Child("name"), c.Env[i].Name, "Layerwright sets this one itself"))
		}
		if from := c.Env[i].ValueFrom; from != nil && from.SecretKeyRef != nil {
			problems = append(problems, r.secret(from.SecretKeyRef.Name, place.Child("valueFrom", "secretKeyRef", "name"))...)
		}
	}
	for i := range c.EnvFrom {
		if from := c.EnvFrom[i].SecretRef; from != nil {
			problems = append(problems, r.secret(from.Name, at.Child("envFrom").Index(i).Child("secretRef", "name"))...)
		}
	}
	for i := range c.Ports {
		if c.Ports[i].HostPort != 0 {
			problems = append(problems, field.Forbidden(at.Child("ports").Index(i).Child("hostPort"), nothingOfTheNode))
		}
	}
	problems = append(problems, devices(&c.Resources, at.Child("resources"))...)
	problems = append(problems, handlers(c, at)...)
	if c.SecurityContext != nil {
		problems = append(problems, privileges(c.SecurityContext, at.Child("securityContext"))...)
	}
	return problems
}

// handlers refuses what has the kubelet ask other hosts than the pod: it does so from the node,
// where no NetworkPolicy holds.
func handlers(c *corev1.Container, at *field.Path) field.ErrorList {
	var problems field.ErrorList
	check := func(at *field.Path, get *corev1.HTTPGetAction, socket *corev1.TCPSocketAction) {
		if get != nil && get.Host != "" {
			problems = append(problems, field.Forbidden(at.Child("httpGet", "host"), nothingOfTheNode))
		}
		if socket != nil && socket.Host != "" {
			problems = append(problems, field.Forbidden(at.Child("tcpSocket", "host"), nothingOfTheNode))
		}
	}
	for name, probe := range map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe} {
		if probe != nil {
			check(at.Child(name), probe.HTTPGet, probe.TCPSocket)
		}
	}
	if c.Lifecycle == nil {
		return problems
	}
	for name, hook := range map[string]*corev1.LifecycleHandler{"postStart": c.Lifecycle.PostStart, "preStop": c.Lifecycle.PreStop} {
		if hook != nil {
			check(at.Child("lifecycle", name), hook.HTTPGet, hook.TCPSocket)
		}
	}
	return problems
}

// privileges refuses those that reach beyond the container.
func privileges(security *corev1.SecurityContext, at *field.Path) field.ErrorList {
	problems := append(confinement(at, security.SELinuxOptions, security.AppArmorProfile, security.WindowsOptions), seccomp(at, security.SeccompProfile)...)
	if security.ProcMount != nil && *security.ProcMount != corev1.DefaultProcMount {
		problems = append(problems, field.Forbidden(at.Child("procMount"), nothingOfTheNode))
	}
	if security.Privileged != nil && *security.Privileged {
		problems = append(problems, field.Forbidden(at.Child("privileged"), nothingOfTheNode))
	}
	if security.Capabilities != nil {
		for i, added := range security.Capabilities.Add {
			if added != "NET_BIND_SERVICE" {
				problems = append(problems, field.Invalid(at.Child("capabilities", "add").Index(i), added, "tests may add NET_BIND_SERVICE"))
			}
		}
	}
	return problems
}
