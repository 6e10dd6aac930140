package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
)

// Kinds of objects: their names are "<kind>-<MachineOSBuild>", of which all but context are published.
const (
	kindJob          = "build"
	kindInstructions = "containerfile"
	kindContext      = "context"
	kindRegistries   = "etc-registries"
	kindPolicy       = "etc-policy"
	kindTrust        = "additionaltrustbundle"
)

// Keys of ConfigMaps, which are the names of files; backend has the folders.
const (
	instructionsKey = "instructions.json"
	registriesKey   = "registries.conf"
	policyKey       = "policy.json"
	trustKey        = "additional-trust-bundle.pem"
)

// Labels that the NetworkPolicy of build pods selects by, and annotations that ask autoscalers to leave a build alone: to save a node is no
// reason to build again.
const (
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"
	component      = "build"
	safeToEvict    = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	doNotDisrupt   = "karpenter.sh/do-not-disrupt"
)

const (
	// defaultAccount is the ServiceAccount in deploy/base.
	defaultAccount = "layerwright-build"
	defaultTimeout = 2 * time.Hour
	// gracePeriod is what a step has to end in order; the builder takes up to 20 s.
	gracePeriod = 30 * time.Second
	// maxConfigMap is what the API server stores in one, in bytes.
	maxConfigMap = 1 << 20
)

// patience is how long a build may wait, for a secret or a node, in addition to what its attempts may take. A Job that nothing ever lets run
// ends after that.
const patience = 24 * time.Hour

// objects are everything that a build consists of, in the order in which it is made: a pod finds all that it mounts.
type objects struct {
	configMaps []*corev1.ConfigMap
	jobs       []*batchv1.Job
}

// newObjects makes the objects of a build. isolations are those of its architectures, in their order.
func newObjects(o *Options, spec *backend.Spec, isolations []isolation) (*objects, error) {
	if len(spec.Architectures) == 0 || spec.Key.Build == "" || spec.Key.UID == "" {
		return nil, errors.New("a build has a name, a UID and at least one architecture")
	}
	m := &maker{options: o, spec: spec}
	m.shared()
	for i, isolated := range isolations {
		if err := m.architecture(&spec.Architectures[i], isolated); err != nil {
			return nil, err
		}
	}
	return &m.objects, checkSizes(m.objects.configMaps)
}

// maker makes the objects of one build.
type maker struct {
	options *Options
	spec    *backend.Spec
	objects objects
}

// shared makes what all architectures have.
func (m *maker) shared() {
	for _, file := range []struct {
		kind, key string
		content   []byte
	}{
		{kindRegistries, registriesKey, m.spec.Registries},
		{kindPolicy, policyKey, m.spec.Policy},
		{kindTrust, trustKey, m.spec.TrustBundle},
	} {
		if len(file.content) > 0 {
			m.configMap(file.kind, "", map[string][]byte{file.key: file.content})
		}
	}
}

// suffix is what the names of an architecture's objects end in: nothing where there is only one.
func (m *maker) suffix(architecture mcfgv1.Architecture) string {
	if len(m.spec.Architectures) == 1 {
		return ""
	}
	return architecture.OCI()
}

func (m *maker) name(kind, suffix string) string {
	return names.BuildObject(kind, m.spec.Key.Build, suffix)
}

func (m *maker) configMap(kind, suffix string, files map[string][]byte) {
	c := &corev1.ConfigMap{ObjectMeta: m.meta(m.name(kind, suffix), m.annotations()), Immutable: new(true)}
	for name, content := range files {
		if utf8.Valid(content) { // so that people can read it
			c.Data = put(c.Data, name, string(content))
		} else {
			c.BinaryData = put(c.BinaryData, name, content)
		}
	}
	m.objects.configMaps = append(m.objects.configMaps, c)
}

func put[V any](to map[string]V, key string, value V) map[string]V {
	if to == nil {
		to = map[string]V{}
	}
	to[key] = value
	return to
}

// architecture makes what one architecture has: its instructions and files, and the Job.
func (m *maker) architecture(a *backend.ArchitectureSpec, isolated isolation) error {
	text, err := json.MarshalIndent(&a.Instructions, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the instructions of %s: %w", a.Architecture, err)
	}
	suffix := m.suffix(a.Architecture)
	m.configMap(kindInstructions, suffix, map[string][]byte{instructionsKey: text})
	if len(a.Context) > 0 {
		for file := range a.Context {
			if problems := validation.IsConfigMapKey(file); len(problems) > 0 {
				return fault.NewTerminal(mcfgv1.ReasonInvalidContainerfile, fmt.Errorf("file %q of the build context: %s", file, strings.Join(problems, "; ")))
			}
		}
		m.configMap(kindContext, suffix, a.Context)
	}
	job, err := m.job(a, text, isolated)
	if err != nil {
		return err
	}
	m.objects.jobs = append(m.objects.jobs, job)
	return nil
}

// checkSizes refuses what the API server would not store.
func checkSizes(configMaps []*corev1.ConfigMap) error {
	for _, c := range configMaps {
		size := 0
		for _, content := range c.Data {
			size += len(content)
		}
		for _, content := range c.BinaryData {
			size += len(content)
		}
		if size <= maxConfigMap {
			continue
		}
		return fault.NewTerminal(mcfgv1.ReasonInvalidContainerfile, fmt.Errorf(
			"%s: %d bytes in %d files are more than the %d that a ConfigMap holds; put large files into an image, and take them with COPY --from",
			c.Name, size, len(c.Data)+len(c.BinaryData), maxConfigMap))
	}
	return nil
}

func (m *maker) labels() map[string]string {
	l := map[string]string{
		nameLabel:                           "layerwright",
		componentLabel:                      component,
		mcfgv1.LabelOnClusterLayering:       "",
		mcfgv1.LabelEphemeralBuildObject:    "",
		mcfgv1.LabelMachineOSBuild:          names.BuildLabel(m.spec.Key.Build),
		mcfgv1.LabelTargetMachineConfigPool: names.BuildLabel(m.spec.Pool),
	}
	for key, value := range map[string]string{
		mcfgv1.LabelMachineOSConfig: m.spec.Config, mcfgv1.LabelRenderedMachineConfig: m.spec.Rendered, mcfgv1.LabelRenderedImagePushSecret: m.spec.PushSecret,
	} {
		if value != "" {
			l[key] = names.BuildLabel(value)
		}
	}
	for _, input := range m.spec.Inputs {
		switch input.Name {
		case backend.InputEntitlement:
			l[mcfgv1.LabelHasEntitlement] = ""
		case backend.InputYumRepos:
			l[mcfgv1.LabelHasYumRepos] = ""
		case backend.InputRPMKeys:
			l[mcfgv1.LabelHasRPMGPGKeys] = ""
		}
	}
	return l
}

// annotations say which build an object is of.
func (m *maker) annotations() map[string]string {
	all := make([]string, len(m.spec.Architectures))
	for i := range m.spec.Architectures {
		all[i] = string(m.spec.Architectures[i].Architecture)
	}
	return map[string]string{
		mcfgv1.AnnotationMachineOSBuild:     m.spec.Key.Build,
		mcfgv1.AnnotationMachineOSBuildUID:  m.spec.Key.UID,
		mcfgv1.AnnotationBuildArchitectures: strings.Join(all, ","),
	}
}

// meta is that of an object that goes with the MachineOSBuild, or of a trial with the MachineOSConfig. That does not block its owner's deletion, which would take a right.
func (m *maker) meta(name string, annotations map[string]string) metav1.ObjectMeta {
	kind, owner := "MachineOSBuild", m.spec.Key.Build
	if m.spec.Key.Trial != "" {
		kind, owner = "MachineOSConfig", m.spec.Key.Trial
	}
	return metav1.ObjectMeta{
		Name: name, Namespace: m.options.Namespace, Labels: m.labels(), Annotations: annotations,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: mcfgv1.GroupVersion.String(), Kind: kind, Name: owner, UID: types.UID(m.spec.Key.UID), Controller: new(true),
		}},
	}
}

func (m *maker) job(a *backend.ArchitectureSpec, instructions []byte, isolated isolation) (*batchv1.Job, error) {
	pod, err := m.pod(a, instructions, isolated)
	if err != nil {
		return nil, fmt.Errorf("making the pod of %s: %w", a.Architecture, err)
	}
	annotations := m.annotations()
	annotations[mcfgv1.AnnotationBuildArchitecture] = string(a.Architecture)
	annotations[mcfgv1.AnnotationBuildIsolation] = isolated.String()
	annotations[mcfgv1.AnnotationBuildSettings] = m.spec.Settings()
	podAnnotations := maps.Clone(annotations)
	podAnnotations[safeToEvict], podAnnotations[doNotDisrupt] = "false", "true"
	retries := int32(max(m.spec.Retries, 0)) //nolint:gosec // at most 10
	return &batchv1.Job{
		ObjectMeta: m.meta(m.name(kindJob, m.suffix(a.Architecture)), annotations),
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)),
			BackoffLimit:          &retries,
			ActiveDeadlineSeconds: seconds(time.Duration(retries+1)*m.timeout() + patience),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				{
					Action: batchv1.PodFailurePolicyActionFailJob,
					OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
						Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{backend.ExitAdmin},
					},
				},
				{ // an eviction counts: what a build does to its node may be why, and it would be evicted for ever
					Action:          batchv1.PodFailurePolicyActionCount,
					OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
				},
			}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: m.labels(), Annotations: podAnnotations},
				Spec:       pod,
			},
		},
	}, nil
}

func (m *maker) timeout() time.Duration {
	if m.spec.Timeout <= 0 {
		return defaultTimeout
	}
	return m.spec.Timeout
}

// seconds rounds up: an attempt is never shorter than was asked for.
func seconds(d time.Duration) *int64 { return new(int64((d + time.Second - 1) / time.Second)) }

// nodeSelector is where builds of an architecture run.
func nodeSelector(placement *mcfgv1.BuildPlacement, architecture mcfgv1.Architecture) map[string]string {
	selector := map[string]string{}
	if placement != nil {
		maps.Copy(selector, placement.NodeSelector)
	}
	selector[corev1.LabelOSStable], selector[corev1.LabelArchStable] = "linux", architecture.OCI()
	return selector
}

func (m *maker) pod(a *backend.ArchitectureSpec, instructions []byte, isolated isolation) (corev1.PodSpec, error) {
	mounts := m.mounts(a, instructions)
	containers := []corev1.Container{}
	for _, step := range backend.Steps() {
		files, err := expected(mounts, step)
		if err != nil {
			return corev1.PodSpec{}, err
		}
		containers = append(containers, m.container(step, mounts, files, isolated))
	}
	pod := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		InitContainers:                containers[:len(containers)-1],
		Containers:                    containers[len(containers)-1:],
		Volumes:                       volumesOf(mounts),
		ActiveDeadlineSeconds:         seconds(m.timeout()),
		TerminationGracePeriodSeconds: seconds(gracePeriod),
		ServiceAccountName:            m.options.ServiceAccount,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		PriorityClassName:             m.options.PriorityClass,
		NodeSelector:                  nodeSelector(m.spec.Placement, a.Architecture),
		Tolerations:                   tolerationsOf(m.spec.Placement),
		SecurityContext:               &corev1.PodSecurityContext{},
	}
	if isolated.kind == backend.IsolationUserNamespace {
		pod.HostUsers = new(false)
	}
	return pod, nil
}

func (m *maker) container(step backend.Step, mounts []mount, files string, isolated isolation) corev1.Container {
	c := corev1.Container{
		Name: string(step), Image: m.options.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{string(step)},
		Env: []corev1.EnvVar{
			{Name: backend.IsolationVariable, Value: string(isolated.kind)}, {Name: backend.ExpectedVariable, Value: files},
		},
		Resources:       resourcesOf(m.spec.Resources),
		SecurityContext: isolated.securityContext(),
		// A step that could not leave a report, because it crashed, leaves its last lines.
		TerminationMessagePath: backend.ReportFile, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	for _, name := range slices.Sorted(maps.Keys(m.spec.Proxy)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: m.spec.Proxy[name]})
	}
	for _, mounted := range mounts {
		if slices.Contains(mounted.steps, step) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
				Name: mounted.volume.Name, MountPath: mounted.path, ReadOnly: mounted.isReadOnly(step),
			})
		}
	}
	return c
}
