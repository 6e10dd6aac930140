package builder

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/remote"
	"github.com/layerwright/layerwright/builder/standalone"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/images/sbom"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/trust/sign"
)

// alone is what makes images without the cluster of a world.
func (w *world) alone() standalone.Options {
	client := registry.New(registry.Options{Transport: &http.Transport{DisableKeepAlives: true}})
	loader := baseimage.New(baseimage.Options{CacheDir: w.cacheDir})
	return standalone.Options{
		Credentials: credentials.Credentials{Pull: client, Push: client}, Base: loader, Fetcher: remote.New(remote.Options{}),
		SBOMs: sbom.New(loader, "v1", w.clock), Clock: w.clock, Progress: func(string) {},
	}
}

// request asks for what the MachineOSConfig of a pool asks for.
func (w *world) request(pool, repository string) *standalone.Request {
	w.t.Helper()
	rendered := read(w, &mcfgv1.MachineConfig{}, w.pool(pool).Spec.Configuration.Name)
	config, err := machineconfigs.Parse(rendered)
	require.NoError(w.t, err)
	return &standalone.Request{
		Pool: pool, Config: pool, Rendered: config, ConfigHash: must(provenance.HashConfig(rendered)), Base: w.base,
		Repository: w.registry.host + "/" + repository,
	}
}

func TestTheImageOfALaptopIsTheClusters(t *testing.T) {
	t.Parallel()
	for name, architectures := range map[string][]string{"of one architecture": nil, "of two architectures": {"amd64", "arm64"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.base = w.registry.pushBase(t, "stream/os", "these", architectures...)
			w.add(w.rendered("worker", "1", "/etc/motd", "one"), newPool("worker", "rendered-worker-1"), w.config("worker"))
			w.settle(w.builder())
			build := w.builds()[0]

			made, err := standalone.Make(t.Context(), w.alone(), w.request("worker", "laptop/os"))
			require.NoError(t, err)
			assert.Equal(t, plan.Append, made.Action)
			assert.Equal(t, w.registry.host+"/laptop/os@"+build.Status.DigestedImagePushSpec.Digest(), made.Pinned)
			assert.Equal(t, build.Status.BuildKey, made.Keys.Build)
			assert.Equal(t, build.Status.ContentKey, made.Keys.Content)
			assert.Equal(t, []string{build.Name, "worker"}, made.Tags)
			assert.Equal(t, w.registry.tags(t, "host/os"), w.registry.tags(t, "laptop/os"))
		})
	}
}

func TestAClusterReusesTheImageOfALaptop(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	options, request := w.alone(), w.request("worker", "host/os")
	options.Keys = w.secretKeys()
	made, err := standalone.Make(t.Context(), options, request)
	require.NoError(t, err)
	require.NoError(t, w.verify(made.Pinned, firstKey()))
	assert.Equal(t, firstKey().ID(), made.KeyID)
	require.Len(t, made.Stated.Made, 2)
	statements, err := sign.NewSigner(options.Keys).Statements(t.Context(), options.Credentials.Push, made.Pinned, sign.PredicateProvenance)
	require.NoError(t, err)
	require.Len(t, statements, 1)
	said := &provenance.Predicate{}
	require.NoError(t, json.Unmarshal(statements[0], said))
	assert.Equal(t, provenance.BuildTypeImage, said.BuildDefinition.BuildType)
	assert.Equal(t, provenance.External{
		MachineConfigPool: "worker", MachineOSConfig: "worker", OSImageStream: "rhel-10", RenderedImagePushSpec: w.registry.host + "/host/os:" + made.Tags[0],
	}, said.BuildDefinition.ExternalParameters)
	assert.Equal(t, provenance.Append, said.BuildDefinition.InternalParameters.Backend)
	before := w.registry.tags(t, "host/os")

	w.settle(w.builder(w.signing, func(o *settings) { o.Attester = sign.NewSigner(w.secretKeys()) }))
	build := w.builds()[0]
	assert.Equal(t, "True Reused the registry had the image already", text(build.Status.Conditions, status.BuildSucceeded))
	assert.Equal(t, made.Pinned, string(build.Status.DigestedImagePushSpec))
	assert.Equal(t, "True Succeeded", w.says("worker", status.Ready))
	assert.Equal(t, before, w.registry.tags(t, "host/os"), "nothing was signed or stated again")
}

func TestAClusterMakesAnImageAnewThatItsKeyHasNotSigned(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	made, err := standalone.Make(t.Context(), w.alone(), w.request("worker", "host/os"))
	require.NoError(t, err)
	assert.Empty(t, made.KeyID)
	w.settle(w.builder(w.signing))
	assert.Contains(t, text(w.builds()[0].Status.Conditions, status.BuildSucceeded), "ConfigAppended")
}

func TestALaptopAppendsToContentThatAClusterHasBuilt(t *testing.T) {
	t.Parallel()
	w, _, use := withContent(t, cheapFile)
	w.add(firstKey().secret())
	w.settle(w.builder(use, w.withSBOMs))
	w.rerender("worker", "2", "/etc/motd", "two")
	options, request := w.alone(), w.request("worker", "host/os")
	options.Keys = w.secretKeys()
	request.Sources = []containerfiles.Source{{Arch: mcfgv1.NoArch, Name: "Containerfile", Text: cheapFile}}
	made, err := standalone.Make(t.Context(), options, request)
	require.NoError(t, err)
	assert.Equal(t, plan.Append, made.Action)
	assert.Equal(t, "two", w.unpacked(made.Pinned, "amd64", "etc/motd"))
	assert.Equal(t, "built for amd64", w.unpacked(made.Pinned, "amd64", "usr/share/built"))
	w.settle(w.builder(use, w.withSBOMs))
	assert.Equal(t, made.Pinned, string(w.osConfig("worker").Status.CurrentImagePullSpec))
}

// laptopBuilder builds content as the stand-in for a backend does, or says what it is told to.
type laptopBuilder struct {
	w     *world
	state *backend.State
}

// Build builds it.
func (b laptopBuilder) Build(_ context.Context, spec *backend.Spec) (*backend.State, error) {
	if b.state != nil {
		return b.state, nil
	}
	return &backend.State{Phase: backend.Succeeded, Image: b.w.built(&spec.Architectures[0], 1)}, nil
}

func TestTheBuiltImageOfALaptopIsTheClusters(t *testing.T) {
	t.Parallel()
	w, _, use := withContent(t, cheapFile)
	w.add(firstKey().secret())
	options, request := w.alone(), w.request("worker", "host/os")
	options.Keys, options.Builder = w.secretKeys(), laptopBuilder{w: w}
	request.Sources = []containerfiles.Source{{Arch: mcfgv1.NoArch, Name: "Containerfile", Text: cheapFile}}
	made, err := standalone.Make(t.Context(), options, request)
	require.NoError(t, err)
	assert.Equal(t, plan.Build, made.Action)
	assert.Equal(t, "built for amd64", w.unpacked(made.Pinned, "amd64", "usr/share/built"))
	w.settle(w.builder(use, w.withSBOMs))
	assert.Equal(t, made.Pinned, string(w.osConfig("worker").Status.CurrentImagePullSpec), "it is reused")

	w.rerender("worker", "2", "/etc/motd", "two")
	w.settle(w.builder(use, w.withSBOMs))
	build := read(w, &mcfgv1.MachineOSBuild{}, w.osConfig("worker").Annotations[mcfgv1.AnnotationCurrentMachineOSBuild])
	assert.Contains(t, text(build.Status.Conditions, status.BuildSucceeded), "ConfigAppended", "its content is reused too")
}

func TestALaptopMakesNothingTwice(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.add(firstKey().secret())
	options := w.alone()
	options.Keys = w.secretKeys()
	first, err := standalone.Make(t.Context(), options, w.request("worker", "host/os"))
	require.NoError(t, err)
	tags := w.registry.tags(t, "host/os")
	again, err := standalone.Make(t.Context(), options, w.request("worker", "host/os"))
	require.NoError(t, err)
	assert.Equal(t, plan.Reuse, again.Action)
	assert.Equal(t, first.Pinned, again.Pinned)
	assert.Equal(t, tags, w.registry.tags(t, "host/os"))

	w.rerender("worker", "2", "/etc/motd", "two")
	request := w.request("worker", "host/os")
	request.Tag = "v2"
	changed, err := standalone.Make(t.Context(), options, request)
	require.NoError(t, err)
	assert.NotEqual(t, first.Pinned, changed.Pinned)
	assert.Equal(t, "v2", changed.Tags[1])
	tags = w.registry.tags(t, "host/os")
	assert.Equal(t, strings.SplitN(first.Pinned, "@", 2)[1], tags["worker"], "the tag of the pool stays, where another was asked for")
	assert.Equal(t, strings.SplitN(changed.Pinned, "@", 2)[1], tags["v2"])
}

func TestWhatALaptopRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change       func(*world, *standalone.Options, *standalone.Request)
		says, reason string
	}{
		"content that can't be built": {
			change: func(w *world, o *standalone.Options, r *standalone.Request) {
				r.Sources = []containerfiles.Source{{Arch: mcfgv1.NoArch, Name: "Containerfile", Text: cheapFile}}
				o.Builder = laptopBuilder{w, &backend.State{Phase: backend.Failed, Failure: backend.NewFailure(fault.Terminal, mcfgv1.ReasonBuildFailed, "line 2: it ended with 1")}}
			},
			says: "line 2: it ended with 1", reason: mcfgv1.ReasonBuildFailed,
		},
		"an architecture that the base image lacks": {
			change: func(_ *world, _ *standalone.Options, r *standalone.Request) {
				r.Architectures = []mcfgv1.Architecture{"ARM64"}
			},
			says: "it has no image for ARM64, only for [AMD64]",
		},
		"a base image that is not there": {
			change: func(w *world, _ *standalone.Options, r *standalone.Request) {
				r.Base = w.registry.host + "/stream/os:gone"
			},
			says: "reading the base image", reason: mcfgv1.ReasonImageNotFound,
		},
		"a registry that takes nothing": {
			change: func(w *world, _ *standalone.Options, _ *standalone.Request) {
				w.registry.answering(func(rw http.ResponseWriter, r *http.Request) bool {
					denied := r.Method != http.MethodGet && r.Method != http.MethodHead && strings.Contains(r.URL.Path, "/host/os/")
					if denied {
						rw.WriteHeader(http.StatusForbidden)
					}
					return denied
				})
			},
			says: "the registry denies write access", reason: mcfgv1.ReasonPushDenied,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := layered(t, "worker")
			options, request := w.alone(), w.request("worker", "host/os")
			tt.change(w, &options, request)
			_, err := standalone.Make(t.Context(), options, request)
			require.ErrorContains(t, err, tt.says)
			assert.Equal(t, tt.reason, fault.Reason(err))
			assert.Empty(t, w.registry.tags(t, "host/os"))
		})
	}
}

func TestATagThatStaysIsToldToALaptop(t *testing.T) {
	t.Parallel()
	w := layered(t, "worker")
	w.registry.FixTags(registrytest.Immutables["ECR"])
	_, err := standalone.Make(t.Context(), w.alone(), w.request("worker", "host/os"))
	require.NoError(t, err)
	w.rerender("worker", "2", "/etc/motd", "two")
	made, err := standalone.Make(t.Context(), w.alone(), w.request("worker", "host/os"))
	require.NoError(t, err)
	assert.Equal(t, []string{"worker"}, made.Immutable)
	assert.Len(t, made.Tags, 1)
	_, err = ggcr.Head(w.registry.parse(t, w.registry.host+"/host/os:"+made.Tags[0]))
	require.NoError(t, err)
}
