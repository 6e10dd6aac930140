package jobs

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/layerwright/layerwright/builder/backend"
)

// mount is a volume, and which steps have it where.
type mount struct {
	volume corev1.Volume
	path   string
	steps  []backend.Step
	// files are what the controller put there; nil where others did.
	files map[string][]byte
}

// isReadOnly reports whether a step may only read the volume: what the cluster made, and what another step left for it.
func (m mount) isReadOnly(step backend.Step) bool {
	return m.volume.EmptyDir == nil || m.path == backend.LayoutDir && step == backend.Push
}

// Modes of files: a secret of a registry is for the step alone, while RUN lines may read inputs as any user.
const (
	modePrivate = 0o400
	modeShared  = 0o444
)

// smallVolume is for what is not worth a setting.
const smallVolume = "64Mi"

// mounts are the volumes of an architecture's pod. What is not listed for a step, its container does not have.
func (m *maker) mounts(a *backend.ArchitectureSpec, instructions []byte) []mount {
	suffix := m.suffix(a.Architecture)
	all, remote := backend.Steps(), []backend.Step{backend.Fetch, backend.Push}
	build := []backend.Step{backend.Build}
	mounts := []mount{
		{volume: m.large("store"), path: backend.WorkDir, steps: []backend.Step{backend.Fetch, backend.Build, backend.Export}},
		{volume: m.large("fetched"), path: backend.FetchedDir, steps: remote},
		{volume: m.large("layout"), path: backend.LayoutDir, steps: []backend.Step{backend.Export, backend.Push}},
	}
	for _, step := range all { // each its own: RUN lines write there
		mounts = append(mounts,
			mount{volume: emptyDir("tmp-"+string(step), resource.MustParse(smallVolume)), path: backend.TempDir, steps: []backend.Step{step}},
			mount{volume: emptyDir("run-"+string(step), resource.MustParse(smallVolume)), path: backend.RunDir, steps: []backend.Step{step}})
	}
	mounts = append(mounts, mount{
		configMapVolume("instructions", m.name(kindInstructions, suffix)), path.Dir(backend.InstructionsFile), all,
		map[string][]byte{instructionsKey: instructions},
	})
	if len(a.Context) > 0 {
		mounts = append(mounts, mount{configMapVolume("context", m.name(kindContext, suffix)), backend.ContextDir, build, a.Context})
	}
	for i, input := range m.spec.Inputs {
		mounts = append(mounts, mount{volume: inputVolume(fmt.Sprintf("input-%d", i), input), path: path.Join(backend.InputsDir, input.Name), steps: build})
	}
	if m.spec.PullSecret != "" {
		pull := secretVolume("pull-secret", m.spec.PullSecret, modePrivate)
		mounts = append(mounts,
			mount{volume: pull, path: backend.CredentialsDir, steps: []backend.Step{backend.Fetch}},
			mount{volume: pull, path: backend.BaseCredentialsDir, steps: []backend.Step{backend.Push}})
	}
	if m.spec.PushSecret != "" {
		push := secretVolume("push-secret", m.spec.PushSecret, modePrivate)
		mounts = append(mounts, mount{volume: push, path: backend.CredentialsDir, steps: []backend.Step{backend.Push}})
	}
	if len(m.spec.TrustBundle) > 0 {
		mounts = append(mounts, mount{
			configMapVolume("trust", m.name(kindTrust, "")), backend.TrustDir, all, map[string][]byte{trustKey: m.spec.TrustBundle},
		})
	}
	if sources, files := m.registries(); len(sources) > 0 {
		volume := corev1.Volume{Name: "registries", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(modeShared))},
		}}
		mounts = append(mounts, mount{volume, path.Dir(backend.RegistriesFile), remote, files})
	}
	return mounts
}

// large is a volume for what steps leave each other. It may take what a container may write; more would be counted to the pod, and evict it.
func (m *maker) large(name string) corev1.Volume {
	limits := resourcesOf(m.spec.Resources).Limits
	return emptyDir(name, limits[corev1.ResourceEphemeralStorage])
}

// registries are the files of the pool's configuration that say where images come from, and who must have signed them.
func (m *maker) registries() (sources []corev1.VolumeProjection, files map[string][]byte) {
	for _, file := range []struct {
		kind, key string
		content   []byte
	}{{kindRegistries, registriesKey, m.spec.Registries}, {kindPolicy, policyKey, m.spec.Policy}} {
		if len(file.content) > 0 {
			files = put(files, file.key, file.content)
			sources = append(sources, corev1.VolumeProjection{
				ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: m.name(file.kind, "")}},
			})
		}
	}
	return sources, files
}

// expected says as JSON what a step has to find in the folders that the controller filled.
func expected(mounts []mount, step backend.Step) (string, error) {
	all := map[string]string{}
	for _, m := range mounts {
		if m.files != nil && slices.Contains(m.steps, step) {
			all[m.path] = backend.Fingerprint(m.files)
		}
	}
	text, err := json.Marshal(all)
	return string(text), err
}

func volumesOf(mounts []mount) []corev1.Volume {
	volumes := make([]corev1.Volume, 0, len(mounts))
	for i := range mounts { // those of several steps in different places follow each other
		if last := len(volumes) - 1; last < 0 || volumes[last].Name != mounts[i].volume.Name {
			volumes = append(volumes, mounts[i].volume)
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
