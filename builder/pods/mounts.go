package pods

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/layerwright/layerwright/builder/backend"
)

// Mount is a volume, and which steps have it where.
type Mount struct {
	Volume corev1.Volume
	Path   string
	Steps  []backend.Step
	// Files are what the controller put there; nil where others did.
	Files map[string][]byte
}

// IsReadOnly reports whether a step may only read the volume: what the cluster made, and what
// another step left for it.
func (m Mount) IsReadOnly(step backend.Step) bool {
	return m.Volume.EmptyDir == nil || m.Path == backend.LayoutDir && step == backend.Push
}

// Modes of files: a secret of a registry is for the step alone, while RUN lines may read inputs as
// any user.
const (
	modePrivate = 0o400
	modeShared  = 0o444
)

// smallVolume is for what is not worth a setting.
const smallVolume = "64Mi"

// Mounts are the volumes of an architecture's pod. What is not listed for a step, its container
// does not have.
func (m *Maker) Mounts(a *backend.ArchitectureSpec, instructions []byte) []Mount {
	suffix := m.Suffix(a.Architecture)
	all, remote := backend.Steps(), []backend.Step{backend.Fetch, backend.Push}
	build := []backend.Step{backend.Build}
	mounts := []Mount{
		{Volume: m.large("store"), Path: backend.WorkDir, Steps: []backend.Step{backend.Fetch, backend.Build, backend.Export}},
		{Volume: m.large("fetched"), Path: backend.FetchedDir, Steps: remote},
		{Volume: m.large("layout"), Path: backend.LayoutDir, Steps: []backend.Step{backend.Export, backend.Push}},
	}
	for _, step := range all { // each its own: RUN lines write there
		mounts = append(mounts,
			Mount{Volume: emptyDir("tmp-"+string(step), resource.MustParse(smallVolume)), Path: backend.TempDir, Steps: []backend.Step{step}},
			Mount{Volume: emptyDir("run-"+string(step), resource.MustParse(smallVolume)), Path: backend.RunDir, Steps: []backend.Step{step}})
	}
	mounts = append(mounts, Mount{
		configMapVolume("instructions", m.Name(kindInstructions, suffix)), path.Dir(backend.InstructionsFile), all,
		map[string][]byte{instructionsKey: instructions},
	})
	if len(a.Context) > 0 {
		mounts = append(mounts, Mount{configMapVolume("context", m.Name(kindContext, suffix)), backend.ContextDir, build, a.Context})
	}
	for i, input := range m.Spec.Inputs {
		mounts = append(mounts, Mount{Volume: inputVolume(fmt.Sprintf("input-%d", i), input), Path: path.Join(backend.InputsDir, input.Name), Steps: build})
	}
	if m.Spec.PullSecret != "" {
		pull := secretVolume("pull-secret", m.Spec.PullSecret, modePrivate)
		mounts = append(mounts,
			Mount{Volume: pull, Path: backend.CredentialsDir, Steps: []backend.Step{backend.Fetch}},
			Mount{Volume: pull, Path: backend.BaseCredentialsDir, Steps: []backend.Step{backend.Push}})
	}
	if m.Spec.PushSecret != "" {
		push := secretVolume("push-secret", m.Spec.PushSecret, modePrivate)
		mounts = append(mounts, Mount{Volume: push, Path: backend.CredentialsDir, Steps: []backend.Step{backend.Push}})
	}
	if len(m.Spec.TrustBundle) > 0 {
		mounts = append(mounts, Mount{
			configMapVolume("trust", m.Name(kindTrust, "")), backend.TrustDir, all, map[string][]byte{trustKey: m.Spec.TrustBundle},
		})
	}
	if sources, files := m.registries(); len(sources) > 0 {
		volume := corev1.Volume{Name: "registries", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(modeShared))},
		}}
		mounts = append(mounts, Mount{volume, path.Dir(backend.RegistriesFile), remote, files})
	}
	return mounts
}

// large is a volume for what steps leave each other. It may take what a container may write; more
// would be counted to the pod, and evict it.
func (m *Maker) large(name string) corev1.Volume {
	limits := ResourcesOf(m.Spec.Resources).Limits
	return emptyDir(name, limits[corev1.ResourceEphemeralStorage])
}

// registries are the files of the pool's configuration that say where images come from, and who
// must have signed them.
func (m *Maker) registries() (sources []corev1.VolumeProjection, files map[string][]byte) {
	for _, file := range []struct {
		kind, key string
		content   []byte
	}{{kindRegistries, registriesKey, m.Spec.Registries}, {kindPolicy, policyKey, m.Spec.Policy}} {
		if len(file.content) > 0 {
			files = put(files, file.key, file.content)
			sources = append(sources, corev1.VolumeProjection{
				ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: m.Name(file.kind, "")}},
			})
		}
	}
	return sources, files
}

// Expected says as JSON what a step has to find in the folders that the controller filled.
func Expected(mounts []Mount, step backend.Step) (string, error) {
	all := map[string]string{}
	for _, m := range mounts {
		if m.Files != nil && slices.Contains(m.Steps, step) {
			all[m.Path] = backend.Fingerprint(m.Files)
		}
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// VolumesOf are the volumes of mounts, each once.
func VolumesOf(mounts []Mount) []corev1.Volume {
	volumes := make([]corev1.Volume, 0, len(mounts))
	for i := range mounts { // those of several steps in different places follow each other
		if last := len(volumes) - 1; last < 0 || volumes[last].Name != mounts[i].Volume.Name {
			volumes = append(volumes, mounts[i].Volume)
		}
	}
	return volumes
}

func emptyDir(name string, limit resource.Quantity) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}}}
}

func configMapVolume(name, configMap string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap}, DefaultMode: new(int32(modeShared)),
	}}}
}

func secretVolume(name, secret string, mode int32) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: &mode}}}
}

func inputVolume(name string, input backend.Input) corev1.Volume {
	if input.Secret != "" {
		return secretVolume(name, input.Secret, modeShared)
	}
	return configMapVolume(name, input.ConfigMap)
}
