package worldtest

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/backends"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
)

// Current is the image that the pool should run.
func (w *World) Current() string {
	w.T.Helper()
	return string(w.OSConfig("worker").Status.CurrentImagePullSpec)
}

// EndedBy is the reason with which the last build has ended.
func EndedBy(w *World) string {
	w.T.Helper()
	reason, _ := objects.FinalOf(Read(w, &mcfgv1.MachineOSBuild{}, w.OSConfig("worker").Status.MachineOSBuild.Name).Status.Conditions)
	return reason
}

// StandIn is a backend whose builds add one file to the image that they start from. It has no
// memory but its builds, as a cluster has.
type StandIn struct {
	w *World

	mu    sync.Mutex
	Specs map[backend.Key]backend.Spec
	// numbers tell builds of one key apart, and ensure is how many there were.
	numbers map[backend.Key]int
	Begun   int
	// says, where it is set, is how far each build is. Else they have succeeded.
	Says func(backend.Spec) backend.State
}

// NewStandIn makes a backend that has no builds.
func NewStandIn(w *World) *StandIn {
	return &StandIn{w: w, Specs: map[backend.Key]backend.Spec{}, numbers: map[backend.Key]int{}}
}

// AsJobs is a backend for MachineOSConfigs whose imageBuilderType is Job.
func AsJobs(b backends.Backend) map[mcfgv1.MachineOSImageBuilderType]backends.Backend {
	return map[mcfgv1.MachineOSImageBuilderType]backends.Backend{mcfgv1.JobBuilder: b}
}

// Ensure begins a build unless it is there.
func (s *StandIn) Ensure(_ context.Context, spec backend.Spec) error {
	return s.w.call("ensure MachineOSBuild "+spec.Key.Build, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, has := s.Specs[spec.Key]; !has {
			s.Specs[spec.Key] = spec
			s.Begun++
			s.numbers[spec.Key] = s.Begun
		}
		return nil
	})
}

// Observe says how far a build is.
func (s *StandIn) Observe(_ context.Context, key backend.Key) (backend.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec, has := s.Specs[key]
	if !has {
		return backend.State{Phase: backend.Absent}, nil
	}
	state := backend.State{Phase: backend.Succeeded}
	if s.Says != nil {
		state = s.Says(spec)
	}
	state.Settings = spec.Settings()
	state.Object = &corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: Namespace, Name: "build-" + key.Build}
	if state.Phase == backend.Succeeded && state.Image == "" {
		for _, a := range spec.Architectures {
			result := mcfgv1.ArchitectureBuild{
				Architecture: a.Architecture, State: mcfgv1.ArchitectureSucceeded, DigestedImagePushSpec: mcfgv1.ImageDigestFormat(s.w.Built(&a, s.numbers[key])),
			}
			state.Architectures = append(state.Architectures, result)
		}
		if len(spec.Architectures) == 1 {
			state.Image, state.Architectures = string(state.Architectures[0].DigestedImagePushSpec), nil
		}
	}
	return state, nil
}

// Remove forgets a build.
func (s *StandIn) Remove(_ context.Context, key backend.Key) error {
	s.mu.Lock()
	_, has := s.Specs[key]
	s.mu.Unlock()
	if !has {
		return nil
	}
	return s.w.call("remove MachineOSBuild "+key.Build, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.Specs, key)
		return nil
	})
}

// Only is the one build that the backend has.
func (s *StandIn) Only() backend.Spec {
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(s.w.T, s.Specs, 1)
	for _, spec := range s.Specs {
		return spec
	}
	return backend.Spec{}
}

var contentLabel = regexp.MustCompile(mcfgv1.ImageLabelContentKey + `='([0-9a-f]{32})'`)

// Built makes and pushes what a build is about: the file /usr/share/built and what else it
// installs, on the first of its images.
func (w *World) Built(a *backend.ArchitectureSpec, number int) string {
	w.T.Helper()
	goarch := strings.ToLower(string(a.Architecture))
	from := a.Instructions.Images[0].Image
	image := Must(ggcr.Image(w.Registry.Parse(w.T, from), ggcr.WithPlatform(v1.Platform{OS: "linux", Architecture: goarch})))
	files := map[string]string{"usr/share/built": "built for " + goarch}
	maps.Copy(files, w.Installs)
	image = Must(mutate.AppendLayers(image, registrytest.Layer(w.T, files)))
	config := Must(image.ConfigFile()).DeepCopy()
	label := contentLabel.FindStringSubmatch(a.Instructions.Containerfile)
	require.NotNil(w.T, label, a.Instructions.Containerfile)
	config.Config.Labels[mcfgv1.ImageLabelContentKey] = label[1]
	config.Author = fmt.Sprint(number)
	image = Must(mutate.ConfigFile(image, config))
	var ref name.Reference
	var err error
	for i := range names.MaxTags { // the next one where tags are immutable
		ref = w.Registry.Parse(w.T, names.NextTag(a.Instructions.Target, i+1))
		if err = ggcr.Write(ref, image); err == nil || !strings.Contains(err.Error(), "immutable") {
			break
		}
	}
	require.NoError(w.T, err)
	return ref.Context().Digest(Must(image.Digest()).String()).String()
}

// Containerfiles of stories. The second says itself where the configuration comes in.
const (
	CheapFile    = "FROM os-base-image\nRUN install-something\n"
	ConfigsFirst = "FROM configs AS final\nRUN install-something\n"
)

// WithContent is a world with a pool whose image has content, and what builds it.
func WithContent(t *testing.T, containerfile string) (*World, *StandIn, func(*Settings)) {
	t.Helper()
	w := Layered(t, "worker")
	w.Containerfile(containerfile)
	s := NewStandIn(w)
	return w, s, func(o *Settings) { o.Backends = AsJobs(s) }
}

// Tags are those that stand for something: the registry keeps a tag whose image was deleted.
func (w *World) Tags(repository string) []string {
	w.T.Helper()
	repo := w.Registry.Parse(w.T, w.Registry.Host+"/"+repository).Context()
	all, _ := ggcr.List(repo)
	return slices.DeleteFunc(all, func(tag string) bool {
		return !w.Registry.Has(w.T, repo.Digest(w.Registry.DigestOf(w.T, repo.Tag(tag).String())).String())
	})
}

// Sha is a digest of one character.
func Sha(character string) string { return "sha256:" + strings.Repeat(character, 64) }

// Pulls is a backend that says which images it pulled, the base image among them.
func (s *StandIn) Pulls(images ...mcfgv1.PulledImage) {
	s.Says = func(spec backend.Spec) backend.State {
		state := backend.State{Phase: backend.Succeeded}
		for _, a := range spec.Architectures {
			base := a.Instructions.Images[0]
			state.Pulled = append(state.Pulled, mcfgv1.PulledImage{Name: base.Name, Image: base.Image, Architecture: a.Architecture, ManifestDigest: Sha("0")})
			for _, image := range images {
				if image.Architecture == "" || image.Architecture == a.Architecture {
					image.Architecture = a.Architecture
					state.Pulled = append(state.Pulled, image)
				}
			}
		}
		return state
	}
}

// Content is the content image of the newest build, by digest.
func (w *World) Content() string {
	w.T.Helper()
	tagged := w.Registry.Host + "/host/os:content-" + w.Builds()[0].Status.ContentKey
	return w.Registry.Parse(w.T, tagged).Context().Digest(w.Registry.DigestOf(w.T, tagged)).String()
}
