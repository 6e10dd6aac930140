package standalone_test

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
	"github.com/layerwright/layerwright/test/worldtest"
	"github.com/layerwright/layerwright/trust/sign"
)

// alone is what makes images without the cluster of a world.
func alone(w *worldtest.World) standalone.Options {
	client := registry.New(registry.Options{Transport: &http.Transport{DisableKeepAlives: true}})
	loader := baseimage.New(baseimage.Options{CacheDir: w.CacheDir})
	return standalone.Options{
		Credentials: credentials.Credentials{Pull: client, Push: client}, Base: loader, Fetcher: remote.New(remote.Options{}),
		SBOMs: sbom.New(loader, "v1", w.Clock), Clock: w.Clock, Progress: func(string) {},
	}
}

// request asks for what the MachineOSConfig of a pool asks for.
func request(t *testing.T, w *worldtest.World, pool, repository string) *standalone.Request {
	t.Helper()
	rendered := worldtest.Read(w, &mcfgv1.MachineConfig{}, w.Pool(pool).Spec.Configuration.Name)
	config, err := machineconfigs.Parse(rendered)
	require.NoError(t, err)
	return &standalone.Request{
		Pool: pool, Config: pool, Rendered: config, ConfigHash: worldtest.Must(provenance.HashConfig(rendered)), Base: w.Base,
		Repository: w.Registry.Host + "/" + repository,
	}
}

func TestTheImageOfALaptopIsTheClusters(t *testing.T) {
	t.Parallel()
	for name, architectures := range map[string][]string{"of one architecture": nil, "of two architectures": {"amd64", "arm64"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldtest.New(t)
			w.Base = w.Registry.PushBase(t, "stream/os", "these", architectures...)
			w.Add(w.Rendered("worker", "1", "/etc/motd", "one"), worldtest.NewPool("worker", "rendered-worker-1"), w.Config("worker"))
			w.Settle(w.Builder())
			build := w.Builds()[0]

			made, err := standalone.Make(t.Context(), alone(w), request(t, w, "worker", "laptop/os"))
			require.NoError(t, err)
			assert.Equal(t, plan.Append, made.Action)
			assert.Equal(t, w.Registry.Host+"/laptop/os@"+build.Status.DigestedImagePushSpec.Digest(), made.Pinned)
			assert.Equal(t, build.Status.BuildKey, made.Keys.Build)
			assert.Equal(t, build.Status.ContentKey, made.Keys.Content)
			assert.Equal(t, []string{build.Name, "worker"}, made.Tags)
			assert.Equal(t, w.Registry.Tags(t, "host/os"), w.Registry.Tags(t, "laptop/os"))
		})
	}
}

func TestAClusterReusesTheImageOfALaptop(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	options, request := alone(w), request(t, w, "worker", "host/os")
	options.Keys = w.SecretKeys()
	made, err := standalone.Make(t.Context(), options, request)
	require.NoError(t, err)
	_, err = w.Takes(worldtest.FirstKey()).Verify(t.Context(), options.Credentials.Push, made.Pinned)
	require.NoError(t, err)
	assert.Equal(t, worldtest.FirstKey().ID(), made.KeyID)
	require.Len(t, made.Stated.Made, 2)
	statements, err := sign.NewSigner(options.Keys).Statements(t.Context(), options.Credentials.Push, made.Pinned, sign.PredicateProvenance)
	require.NoError(t, err)
	require.Len(t, statements, 1)
	said := &provenance.Predicate{}
	require.NoError(t, json.Unmarshal(statements[0], said))
	assert.Equal(t, provenance.BuildTypeImage, said.BuildDefinition.BuildType)
	assert.Equal(t, provenance.External{
		MachineConfigPool: "worker", MachineOSConfig: "worker", OSImageStream: "rhel-10", RenderedImagePushSpec: w.Registry.Host + "/host/os:" + made.Tags[0],
	}, said.BuildDefinition.ExternalParameters)
	assert.Equal(t, provenance.Append, said.BuildDefinition.InternalParameters.Backend)
	before := w.Registry.Tags(t, "host/os")

	w.Settle(w.Builder(w.Signing, func(o *worldtest.Settings) { o.Attester = sign.NewSigner(w.SecretKeys()) }))
	build := w.Builds()[0]
	assert.Equal(t, "True Reused the registry had the image already", worldtest.Text(build.Status.Conditions, status.BuildSucceeded))
	assert.Equal(t, made.Pinned, string(build.Status.DigestedImagePushSpec))
	assert.Equal(t, "True Succeeded", w.Says("worker", status.Ready))
	assert.Equal(t, before, w.Registry.Tags(t, "host/os"), "nothing was signed or stated again")
}

func TestAClusterMakesAnImageAnewThatItsKeyHasNotSigned(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	made, err := standalone.Make(t.Context(), alone(w), request(t, w, "worker", "host/os"))
	require.NoError(t, err)
	assert.Empty(t, made.KeyID)
	w.Settle(w.Builder(w.Signing))
	assert.Contains(t, worldtest.Text(w.Builds()[0].Status.Conditions, status.BuildSucceeded), "ConfigAppended")
}

func TestALaptopAppendsToContentThatAClusterHasBuilt(t *testing.T) {
	t.Parallel()
	w, _, use := worldtest.WithContent(t, worldtest.CheapFile)
	w.Add(worldtest.FirstKey().Secret())
	w.Settle(w.Builder(use, w.WithSBOMs))
	w.Rerender("worker", "2", "/etc/motd", "two")
	options, request := alone(w), request(t, w, "worker", "host/os")
	options.Keys = w.SecretKeys()
	request.Sources = []containerfiles.Source{{Arch: mcfgv1.NoArch, Name: "Containerfile", Text: worldtest.CheapFile}}
	made, err := standalone.Make(t.Context(), options, request)
	require.NoError(t, err)
	assert.Equal(t, plan.Append, made.Action)
	assert.Equal(t, "two", w.Unpacked(made.Pinned, "amd64", "etc/motd"))
	assert.Equal(t, "built for amd64", w.Unpacked(made.Pinned, "amd64", "usr/share/built"))
	w.Settle(w.Builder(use, w.WithSBOMs))
	assert.Equal(t, made.Pinned, string(w.OSConfig("worker").Status.CurrentImagePullSpec))
}

// laptopBuilder builds content as the stand-in for a backend does, or says what it is told to.
type laptopBuilder struct {
	w     *worldtest.World
	state *backend.State
}

// Build builds it.
func (b laptopBuilder) Build(_ context.Context, spec *backend.Spec) (*backend.State, error) {
	if b.state != nil {
		return b.state, nil
	}
	return &backend.State{Phase: backend.Succeeded, Image: b.w.Built(&spec.Architectures[0], 1)}, nil
}

func TestTheBuiltImageOfALaptopIsTheClusters(t *testing.T) {
	t.Parallel()
	w, _, use := worldtest.WithContent(t, worldtest.CheapFile)
	w.Add(worldtest.FirstKey().Secret())
	options, request := alone(w), request(t, w, "worker", "host/os")
	options.Keys, options.Builder = w.SecretKeys(), laptopBuilder{w: w}
	request.Sources = []containerfiles.Source{{Arch: mcfgv1.NoArch, Name: "Containerfile", Text: worldtest.CheapFile}}
	made, err := standalone.Make(t.Context(), options, request)
	require.NoError(t, err)
	assert.Equal(t, plan.Build, made.Action)
	assert.Equal(t, "built for amd64", w.Unpacked(made.Pinned, "amd64", "usr/share/built"))
	w.Settle(w.Builder(use, w.WithSBOMs))
	assert.Equal(t, made.Pinned, string(w.OSConfig("worker").Status.CurrentImagePullSpec), "it is reused")

	w.Rerender("worker", "2", "/etc/motd", "two")
	w.Settle(w.Builder(use, w.WithSBOMs))
	build := worldtest.Read(w, &mcfgv1.MachineOSBuild{}, w.OSConfig("worker").Annotations[mcfgv1.AnnotationCurrentMachineOSBuild])
	assert.Contains(t, worldtest.Text(build.Status.Conditions, status.BuildSucceeded), "ConfigAppended", "its content is reused too")
}

func TestALaptopMakesNothingTwice(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Add(worldtest.FirstKey().Secret())
	options := alone(w)
	options.Keys = w.SecretKeys()
	first, err := standalone.Make(t.Context(), options, request(t, w, "worker", "host/os"))
	require.NoError(t, err)
	tags := w.Registry.Tags(t, "host/os")
	again, err := standalone.Make(t.Context(), options, request(t, w, "worker", "host/os"))
	require.NoError(t, err)
	assert.Equal(t, plan.Reuse, again.Action)
	assert.Equal(t, first.Pinned, again.Pinned)
	assert.Equal(t, tags, w.Registry.Tags(t, "host/os"))

	w.Rerender("worker", "2", "/etc/motd", "two")
	request := request(t, w, "worker", "host/os")
	request.Tag = "v2"
	changed, err := standalone.Make(t.Context(), options, request)
	require.NoError(t, err)
	assert.NotEqual(t, first.Pinned, changed.Pinned)
	assert.Equal(t, "v2", changed.Tags[1])
	tags = w.Registry.Tags(t, "host/os")
	assert.Equal(t, strings.SplitN(first.Pinned, "@", 2)[1], tags["worker"], "the tag of the pool stays, where another was asked for")
	assert.Equal(t, strings.SplitN(changed.Pinned, "@", 2)[1], tags["v2"])
}

func TestWhatALaptopRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change       func(*worldtest.World, *standalone.Options, *standalone.Request)
		says, reason string
	}{
		"content that can't be built": {
			change: func(w *worldtest.World, o *standalone.Options, r *standalone.Request) {
				r.Sources = []containerfiles.Source{{Arch: mcfgv1.NoArch, Name: "Containerfile", Text: worldtest.CheapFile}}
				o.Builder = laptopBuilder{w, &backend.State{Phase: backend.Failed, Failure: backend.NewFailure(fault.Terminal, mcfgv1.ReasonBuildFailed, "line 2: it ended with 1")}}
			},
			says: "line 2: it ended with 1", reason: mcfgv1.ReasonBuildFailed,
		},
		"an architecture that the base image lacks": {
			change: func(_ *worldtest.World, _ *standalone.Options, r *standalone.Request) {
				r.Architectures = []mcfgv1.Architecture{"ARM64"}
			},
			says: "it has no image for ARM64, only for [AMD64]",
		},
		"a base image that is not there": {
			change: func(w *worldtest.World, _ *standalone.Options, r *standalone.Request) {
				r.Base = w.Registry.Host + "/stream/os:gone"
			},
			says: "reading the base image", reason: mcfgv1.ReasonImageNotFound,
		},
		"a registry that takes nothing": {
			change: func(w *worldtest.World, _ *standalone.Options, _ *standalone.Request) {
				w.Registry.Answer(func(rw http.ResponseWriter, r *http.Request) bool {
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
			w := worldtest.Layered(t, "worker")
			options, request := alone(w), request(t, w, "worker", "host/os")
			tt.change(w, &options, request)
			_, err := standalone.Make(t.Context(), options, request)
			require.ErrorContains(t, err, tt.says)
			assert.Equal(t, tt.reason, fault.Reason(err))
			assert.Empty(t, w.Registry.Tags(t, "host/os"))
		})
	}
}

func TestATagThatStaysIsToldToALaptop(t *testing.T) {
	t.Parallel()
	w := worldtest.Layered(t, "worker")
	w.Registry.FixTags(registrytest.Immutables["ECR"])
	_, err := standalone.Make(t.Context(), alone(w), request(t, w, "worker", "host/os"))
	require.NoError(t, err)
	w.Rerender("worker", "2", "/etc/motd", "two")
	made, err := standalone.Make(t.Context(), alone(w), request(t, w, "worker", "host/os"))
	require.NoError(t, err)
	assert.Equal(t, []string{"worker"}, made.Immutable)
	assert.Len(t, made.Tags, 1)
	_, err = ggcr.Head(w.Registry.Parse(t, w.Registry.Host+"/host/os:"+made.Tags[0]))
	require.NoError(t, err)
}
