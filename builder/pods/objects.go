package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/names"
)

// Kinds of objects: their names are "<kind>-<MachineOSBuild>", of which all but context are
// published.
const (
	KindBuild        = "build"
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

// Labels that the NetworkPolicy of build pods selects by, and annotations that ask autoscalers to
// leave a build alone: to save a node is no reason to build again.
const (
	nameLabel      = "app.kubernetes.io/name"
	ComponentLabel = "app.kubernetes.io/component"
	Component      = "build"
	SafeToEvict    = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	DoNotDisrupt   = "karpenter.sh/do-not-disrupt"
)

const (
	// DefaultAccount is the ServiceAccount in deploy/base.
	DefaultAccount = "layerwright-build"
	defaultTimeout = 2 * time.Hour
	// GracePeriod is what a step has to end in order; the builder takes up to 20 s.
	GracePeriod = 30 * time.Second
	// maxConfigMap is what the API server stores in one, in bytes.
	maxConfigMap = 1 << 20
)

// Maker makes the objects of one build, but for what runs the pods.
type Maker struct {
	Namespace string
	Spec      *backend.Spec
}

// ConfigMaps are those that the pods mount, in the order in which they are made: a pod finds all
// that it mounts.
func (m *Maker) ConfigMaps() ([]*corev1.ConfigMap, error) {
	if len(m.Spec.Architectures) == 0 || m.Spec.Key.Build == "" || m.Spec.Key.UID == "" {
		return nil, errors.New("a build has a name, a UID and at least one architecture")
	}
	all := m.shared()
	for i := range m.Spec.Architectures {
		own, err := m.architecture(&m.Spec.Architectures[i])
		if err != nil {
			return nil, err
		}
		all = append(all, own...)
	}
	return all, checkSizes(all)
}

// shared makes what all architectures have.
func (m *Maker) shared() (all []*corev1.ConfigMap) {
	for _, file := range []struct {
		kind, key string
		content   []byte
	}{
		{kindRegistries, registriesKey, m.Spec.Registries},
		{kindPolicy, policyKey, m.Spec.Policy},
		{kindTrust, trustKey, m.Spec.TrustBundle},
	} {
		if len(file.content) > 0 {
			all = append(all, m.configMap(file.kind, "", map[string][]byte{file.key: file.content}))
		}
	}
	return all
}

// Suffix is what the names of an architecture's objects end in: nothing where there is only one.
func (m *Maker) Suffix(architecture mcfgv1.Architecture) string {
	if len(m.Spec.Architectures) == 1 {
		return ""
	}
	return architecture.OCI()
}

// Name is that of an object of a kind.
func (m *Maker) Name(kind, suffix string) string {
	return names.BuildObject(kind, m.Spec.Key.Build, suffix)
}

func (m *Maker) configMap(kind, suffix string, files map[string][]byte) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: m.Meta(m.Name(kind, suffix), m.Annotations()), Immutable: new(true)}
	for name, content := range files {
		if utf8.Valid(content) { // so that people can read it
			c.Data = put(c.Data, name, string(content))
		} else {
			c.BinaryData = put(c.BinaryData, name, content)
		}
	}
	return c
}

func put[V any](to map[string]V, key string, value V) map[string]V {
	if to == nil {
		to = map[string]V{}
	}
	to[key] = value
	return to
}

// Instructions are the file with the instructions of an architecture.
func (m *Maker) Instructions(a *backend.ArchitectureSpec) ([]byte, error) {
	text, err := json.MarshalIndent(&a.Instructions, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing the instructions of %s: %w", a.Architecture, err)
	}
	return text, nil
}

// architecture makes what one architecture has: its instructions and files.
func (m *Maker) architecture(a *backend.ArchitectureSpec) ([]*corev1.ConfigMap, error) {
	text, err := m.Instructions(a)
	if err != nil {
		return nil, err
	}
	suffix := m.Suffix(a.Architecture)
	all := []*corev1.ConfigMap{m.configMap(kindInstructions, suffix, map[string][]byte{instructionsKey: text})}
	if len(a.Context) == 0 {
		return all, nil
	}
	for file := range a.Context {
		if problems := validation.IsConfigMapKey(file); len(problems) > 0 {
			return nil, fault.NewTerminal(mcfgv1.ReasonInvalidContainerfile, fmt.Errorf("file %q of the build context: %s", file, strings.Join(problems, "; ")))
		}
	}
	return append(all, m.configMap(kindContext, suffix, a.Context)), nil
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

// Labels are those of everything that a build has.
func (m *Maker) Labels() map[string]string {
	l := map[string]string{
		nameLabel:                           "layerwright",
		ComponentLabel:                      Component,
		mcfgv1.LabelOnClusterLayering:       "",
		mcfgv1.LabelEphemeralBuildObject:    "",
		mcfgv1.LabelMachineOSBuild:          names.BuildLabel(m.Spec.Key.Build),
		mcfgv1.LabelTargetMachineConfigPool: names.BuildLabel(m.Spec.Pool),
	}
	for key, value := range map[string]string{
		mcfgv1.LabelMachineOSConfig: m.Spec.Config, mcfgv1.LabelRenderedMachineConfig: m.Spec.Rendered, mcfgv1.LabelRenderedImagePushSecret: m.Spec.PushSecret,
	} {
		if value != "" {
			l[key] = names.BuildLabel(value)
		}
	}
	for _, input := range m.Spec.Inputs {
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

// Annotations say which build an object is of.
func (m *Maker) Annotations() map[string]string {
	all := make([]string, len(m.Spec.Architectures))
	for i := range m.Spec.Architectures {
		all[i] = string(m.Spec.Architectures[i].Architecture)
	}
	return map[string]string{
		mcfgv1.AnnotationMachineOSBuild:     m.Spec.Key.Build,
		mcfgv1.AnnotationMachineOSBuildUID:  m.Spec.Key.UID,
		mcfgv1.AnnotationBuildArchitectures: strings.Join(all, ","),
	}
}

// Meta is that of an object that goes with the MachineOSBuild, or of a trial with the
// MachineOSConfig. That does not block its owner's deletion, which would take a right.
func (m *Maker) Meta(name string, annotations map[string]string) metav1.ObjectMeta {
	kind, owner := "MachineOSBuild", m.Spec.Key.Build
	if m.Spec.Key.Trial != "" {
		kind, owner = "MachineOSConfig", m.Spec.Key.Trial
	}
	return metav1.ObjectMeta{
		Name: name, Namespace: m.Namespace, Labels: m.Labels(), Annotations: annotations,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: mcfgv1.GroupVersion.String(), Kind: kind, Name: owner, UID: types.UID(m.Spec.Key.UID), Controller: new(true),
		}},
	}
}

// Timeout is how long one attempt may take.
func (m *Maker) Timeout() time.Duration {
	if m.Spec.Timeout <= 0 {
		return defaultTimeout
	}
	return m.Spec.Timeout
}

// Seconds rounds up: an attempt is never shorter than was asked for.
func Seconds(d time.Duration) *int64 { return new(int64((d + time.Second - 1) / time.Second)) }

// NodeSelector is where builds of an architecture run.
func NodeSelector(placement *mcfgv1.BuildPlacement, architecture mcfgv1.Architecture) map[string]string {
	selector := map[string]string{}
	if placement != nil {
		maps.Copy(selector, placement.NodeSelector)
	}
	selector[corev1.LabelOSStable], selector[corev1.LabelArchStable] = "linux", architecture.OCI()
	return selector
}

// ArchitecturesOf are those of the build that an object is of.
func ArchitecturesOf(o metav1.Object) []mcfgv1.Architecture {
	var all []mcfgv1.Architecture
	for name := range strings.SplitSeq(o.GetAnnotations()[mcfgv1.AnnotationBuildArchitectures], ",") {
		all = append(all, mcfgv1.Architecture(name))
	}
	return all
}

// Related are the ConfigMaps that were made for an architecture of a build, among those that
// volumes are of.
func Related(volumes []corev1.Volume, build string, architecture mcfgv1.Architecture) (configMaps []string) {
	isOurs := func(name string) bool {
		return slices.ContainsFunc([]string{kindInstructions, kindContext, kindRegistries, kindPolicy, kindTrust}, func(kind string) bool {
			return name == names.BuildObject(kind, build, "") || name == names.BuildObject(kind, build, architecture.OCI())
		})
	}
	for _, v := range volumes {
		if v.ConfigMap != nil && isOurs(v.ConfigMap.Name) {
			configMaps = append(configMaps, v.ConfigMap.Name)
		}
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ConfigMap != nil && isOurs(source.ConfigMap.Name) {
				configMaps = append(configMaps, source.ConfigMap.Name)
			}
		}
	}
	return configMaps
}
