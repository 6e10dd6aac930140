package registry_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
)

// deadHost is one where nothing listens.
const deadHost = "127.0.0.1:1"

// digestMirrors are a table with mirrors of one source, for images by digest.
func digestMirrors(policy, source string, places ...string) mirrors.Table {
	return mirrors.Table{mirrors.Rules{}.Add(mirrors.DigestsOnly, mirrors.Entry{Source: source, Mirrors: places, MirrorSourcePolicy: policy})}
}

// named is an image of a server by another repository's name.
func named(repository, pinned string) string {
	_, digest, _ := strings.Cut(pinned, "@")
	return repository + "@" + digest
}

func TestReadsGoThroughMirrors(t *testing.T) {
	t.Parallel()
	source, mirror := registrytest.New(t, nil), registrytest.New(t, nil)
	index := indexOf(t, types.OCIImageIndex, shape{arch: "amd64", layers: three.layers}, shape{arch: "arm64", layers: three.layers})
	image := named(source.Host+"/team/os", mirror.Push(t, "copy/os:1", index))
	c := client(t, anonymous).Through(digestMirrors("", source.Host+"/team", mirror.Host+"/copy"))

	resolved, err := c.Resolve(t.Context(), image)
	require.NoError(t, err)
	assert.Equal(t, image, resolved.Image, "it keeps its name")
	opened, err := c.Image(t.Context(), image, arm64)
	require.NoError(t, err)
	requireSound(t, opened)
	inspected, err := c.Inspect(t.Context(), image)
	require.NoError(t, err)
	assert.Equal(t, image, inspected.Image)
	parts, err := c.Manifests(t.Context(), image)
	require.NoError(t, err)
	for _, part := range parts {
		assert.Contains(t, part, source.Host+"/team/os@")
	}
	assert.Empty(t, source.Requests(), "the source is never asked")
}

func TestPlacesAreAskedInTurn(t *testing.T) {
	t.Parallel()
	img := three.make(t)
	lie := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
		_, _ = io.WriteString(w, `{"schemaVersion":2}`)
		return true
	}
	deny := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	fail := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	tests := map[string]struct {
		has    bool // whether the source has it
		answer func(http.ResponseWriter, *http.Request) bool
		policy string
		dead   bool // whether the mirror is down
		// want is empty where it is read, and else in the error; class is the error's.
		want    []string
		class   fault.Class
		isThere bool // whether the error leaves open that it exists
	}{
		"the mirror lacks it":                     {has: true},
		"the mirror is down":                      {has: true, dead: true},
		"the mirror denies it":                    {has: true, answer: deny},
		"the mirror lies about the digest":        {has: true, answer: lie},
		"neither has it":                          {want: []string{"it does not exist", "MIRROR/copy/os", "SOURCE/team/os", "no place of 2"}, class: fault.Terminal},
		"the mirror is down, the source lacks it": {dead: true, want: []string{deadHost + "/copy/os", "SOURCE/team/os"}, class: fault.Transient, isThere: true},
		"the mirror fails, the source lacks it":   {answer: fail, want: []string{"503", "it does not exist"}, class: fault.Transient, isThere: true},
		"the mirror denies, the source lacks it":  {answer: deny, want: []string{"denies read access", "it does not exist"}, class: fault.Terminal, isThere: true},
		"the source may not be asked":             {has: true, policy: "NeverContactSource", want: []string{"it does not exist", `may not be asked`}, class: fault.Terminal},
		"a lie, and no source to ask":             {has: true, answer: lie, policy: "NeverContactSource", want: []string{"does not match requested digest"}, class: fault.Transient, isThere: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, mirror := registrytest.New(t, nil), registrytest.New(t, nil)
			mirror.Answer(tt.answer)
			image := named(source.Host+"/team/os", registrytest.New(t, nil).Push(t, "os:1", img))
			if tt.has {
				image = source.Push(t, "team/os:1", img)
			}
			source.Forget()
			host := mirror.Host
			if tt.dead {
				host = deadHost
			}
			c := client(t, anonymous).Through(digestMirrors(tt.policy, source.Host+"/team", host+"/copy"))
			_, resolveErr := c.Resolve(t.Context(), image)
			_, err := c.Image(t.Context(), image, amd64)
			if len(tt.want) == 0 {
				require.NoError(t, resolveErr)
				require.NoError(t, err)
				return
			}
			for _, err := range []error{resolveErr, err} {
				require.Error(t, err)
				for _, part := range tt.want {
					part = strings.NewReplacer("MIRROR", mirror.Host, "SOURCE", source.Host).Replace(part)
					assert.Contains(t, err.Error(), part)
				}
				assert.Equal(t, tt.class, fault.ClassOf(err), err)
				assert.NotEqual(t, tt.isThere, registry.IsNotFound(err), err)
			}
			if tt.policy != "" {
				assert.Empty(t, source.Requests())
			}
		})
	}
}

func TestBlockedImagesAreNotAsked(t *testing.T) {
	t.Parallel()
	source := registrytest.New(t, nil)
	image := source.Push(t, "team/os:1", three.make(t))
	source.Forget()
	rules := mirrors.Rules{{Prefix: source.Host, Location: source.Host, Blocked: true}}
	for _, name := range []string{image, source.Host + "/team/os:1"} {
		_, err := client(t, anonymous).Through(mirrors.Table{rules}).Resolve(t.Context(), name)
		require.ErrorContains(t, err, "may not be asked")
		assert.Equal(t, mcfgv1.ReasonImageNotFound, fault.Reason(err))
		assert.False(t, registry.IsNotFound(err), "no one has looked")
	}
	assert.Empty(t, source.Requests())
}

func TestTagsThroughMirrorsOfTags(t *testing.T) {
	t.Parallel()
	source, mirror := registrytest.New(t, nil), registrytest.New(t, nil)
	old, newer := three, three
	old.body, newer.body = "old", "new"
	here := source.Push(t, "team/os:1", old.make(t))
	there := named(source.Host+"/team/os", mirror.Push(t, "copy/os:1", newer.make(t)))
	entry := mirrors.Entry{Source: source.Host + "/team", Mirrors: []string{mirror.Host + "/copy"}}
	for use, want := range map[mirrors.Use]string{mirrors.DigestsOnly: here, mirrors.TagsOnly: there, mirrors.All: there} {
		found, err := client(t, anonymous).Through(mirrors.Table{mirrors.Rules{}.Add(use, entry)}).Resolve(t.Context(), source.Host+"/team/os:1")
		require.NoError(t, err)
		assert.Equal(t, want, found.Image, use)
	}
}

func TestMirrorsKeepTheDigest(t *testing.T) {
	t.Parallel()
	mirror := registrytest.New(t, nil)
	image := "quay.io/os@sha256:" + strings.Repeat("0", 64)
	mirror.Push(t, "os:1", three.make(t))
	mirror.Forget()
	rules := mirrors.Rules{{Prefix: image, Blocked: true, Mirrors: []mirrors.Mirror{{Location: mirror.Host + "/os:1"}}}}
	_, err := client(t, anonymous).Through(mirrors.Table{rules}).Resolve(t.Context(), image)
	require.ErrorContains(t, err, "is not named by the digest")
	assert.Empty(t, mirror.Requests())
}

func TestPartialMirrors(t *testing.T) {
	t.Parallel()
	source, mirror := registrytest.New(t, nil), registrytest.New(t, nil)
	index := indexOf(t, types.OCIImageIndex, shape{arch: "amd64", layers: three.layers}, shape{arch: "arm64", layers: three.layers})
	image := source.Push(t, "team/os:1", index)
	mirror.Push(t, "copy/os:1", index)
	mirror.Answer(func(w http.ResponseWriter, r *http.Request) bool { // it has the list, and not what is in it
		if _, name, isManifest := strings.Cut(r.URL.Path, "/manifests/"); !isManifest || strings.HasSuffix(image, name) {
			return false
		}
		w.WriteHeader(http.StatusNotFound)
		return true
	})
	opened, err := client(t, anonymous).Through(digestMirrors("", source.Host+"/team", mirror.Host+"/copy")).Image(t.Context(), image, arm64)
	require.NoError(t, err)
	requireSound(t, opened)
}

// TestMirrorsHaveTheirOwnCredentials has two registries with an account each.
func TestMirrorsHaveTheirOwnCredentials(t *testing.T) {
	t.Parallel()
	source, mirror := registrytest.New(t, nil), registrytest.New(t, nil)
	image := named(source.Host+"/team/os", mirror.Push(t, "copy/os:1", three.make(t)))
	for _, server := range []*registrytest.Server{source, mirror} {
		want := "pull"
		if server == source {
			want = "push"
		}
		server.Answer(func(w http.ResponseWriter, r *http.Request) bool {
			switch account, _, _ := r.BasicAuth(); account {
			case want:
				return false
			case "":
			default:
				t.Errorf("the registry %s gets the login %q", r.Host, account)
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		})
	}
	c := client(t, func(o *registry.Options) { o.Keychain = logins{mirror.Host: puller, source.Host: pusher} })
	_, err := c.Through(digestMirrors("", source.Host+"/team", mirror.Host+"/copy")).Resolve(t.Context(), image)
	require.NoError(t, err)
}

// TestAppendFromMirrors appends to an image whose registry is down.
func TestAppendFromMirrors(t *testing.T) {
	t.Parallel()
	for name, isOneRegistry := range map[string]bool{"from another registry": false, "in the registry of the mirror": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mirror, target := registrytest.New(t, nil), registrytest.New(t, nil)
			if isOneRegistry {
				target = mirror
			}
			content := named(deadHost+"/team/os", mirror.Push(t, "copy/os:1", three.make(t)))
			request := ordinary(t, content, target.Host+"/pool/os")
			request.Source = client(t, anonymous).Through(digestMirrors("", deadHost+"/team", mirror.Host+"/copy"))
			result, err := client(t).Append(t.Context(), request)
			require.NoError(t, err)
			getImage(t, result.Image)
			const config = 1
			assert.Equal(t, isOneRegistry, mirror.Count(http.MethodGet, "/copy/os/blobs/") == config, "layers are mounted from the mirror")
		})
	}
}

// TestPushesNeverGoToMirrors has a mirror for the repository that is pushed to.
func TestPushesNeverGoToMirrors(t *testing.T) {
	t.Parallel()
	target, mirror := registrytest.New(t, nil), registrytest.New(t, nil)
	content := target.Push(t, "base/os:1", three.make(t))
	through := mirrors.Table{mirrors.Rules{}.Add(mirrors.All, mirrors.Entry{Source: target.Host + "/pool", Mirrors: []string{mirror.Host + "/pool"}})}
	c := client(t).Through(through)
	_, err := c.Append(t.Context(), ordinary(t, content, target.Host+"/pool/os"))
	require.NoError(t, err)
	require.NoError(t, c.CanPush(t.Context(), target.Host+"/pool/os"))
	assert.Empty(t, mirror.Requests())
}

func TestAttachmentsInMirrors(t *testing.T) {
	t.Parallel()
	kind := registry.AttachmentKind{Suffix: "sig", MediaType: "application/x.test"}
	deny := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	tests := map[string]struct {
		mirror, source string // what is attached there
		answer         func(http.ResponseWriter, *http.Request) bool
		dead           bool // whether the mirror is down
		want           string
		wantErr        string
	}{
		"the mirror's come first":              {mirror: "m", source: "s", want: "m"},
		"the mirror has none":                  {source: "s", want: "s"},
		"the mirror is down":                   {source: "s", dead: true, want: "s"},
		"none anywhere":                        {},
		"none, and the mirror may not be read": {answer: deny},
		"none, and the mirror is down":         {dead: true, wantErr: deadHost},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, mirror := registrytest.New(t, nil), registrytest.New(t, nil)
			image := source.Push(t, "team/os:1", three.make(t))
			for at, content := range map[string]string{image: tt.source, mirror.Push(t, "copy/os:1", three.make(t)): tt.mirror} {
				if content != "" {
					_, err := client(t).Attach(t.Context(), at, kind, registry.Attachment{Content: []byte(content)})
					require.NoError(t, err)
				}
			}
			mirror.Answer(tt.answer)
			host := mirror.Host
			if tt.dead {
				host = deadHost
			}
			found, err := client(t, anonymous).Through(digestMirrors("", source.Host+"/team", host+"/copy")).Attachments(t.Context(), image, kind)
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			var got string
			for _, one := range found {
				got += string(one.Content)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestEndOfContextAsksNoOtherPlace(t *testing.T) {
	t.Parallel()
	source, mirror := registrytest.New(t, nil), registrytest.New(t, nil)
	image := source.Push(t, "team/os:1", three.make(t))
	source.Forget()
	ctx, cancel := context.WithCancel(t.Context())
	mirror.Answer(func(http.ResponseWriter, *http.Request) bool { cancel(); return false })
	_, err := client(t, anonymous).Through(digestMirrors("", source.Host+"/team", mirror.Host+"/copy")).Image(ctx, image, v1.Platform{})
	require.True(t, fault.IsCancellation(err), err)
	assert.Empty(t, source.Requests())
}

// anonymous logs in nowhere.
func anonymous(o *registry.Options) { o.Keychain = authn.NewMultiKeychain() }
