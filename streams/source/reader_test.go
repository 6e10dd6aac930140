package source_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/inwork"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/streams/source"
)

var t0 = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// payload is a release with as many streams, and an image besides that no one has to look at.
func payload(t *testing.T, s *registrytest.Server, streamCount int) (list string) {
	t.Helper()
	pairs := []string{"etcd", s.Push(t, "etcd:1", labelled(t, nil))}
	for i := range streamCount {
		stream := fmt.Sprintf("rhel-%d", i)
		pairs = append(pairs,
			fmt.Sprintf("rhel-coreos-%d", i), s.Push(t, stream+":1", labelled(t, osLabels(stream))),
			fmt.Sprintf("rhel-coreos-%d-extensions", i), s.Push(t, stream+"-extensions:1", labelled(t, extensionsLabels(stream))))
	}
	return references(pairs...)
}

// discover reads a release and all that it names, and returns the streams.
func discover(t *testing.T, r *source.Reader, release string) streams.Set {
	t.Helper()
	list, err := r.Release(t.Context(), access(), release)
	require.NoError(t, err)
	assert.Equal(t, "4.21.0", list.Version)
	gathered, err := r.Inspect(t.Context(), access(), streams.FromRelease(list.Tags))
	require.NoError(t, err)
	return streams.Merge([]streams.Contribution{streams.Group(gathered)}, nil)
}

func TestReleaseReadsManifestsAndConfigs(t *testing.T) {
	t.Parallel()
	s := registrytest.New(t, nil)
	images := payload(t, s, 10)
	release := s.Push(t, "release:1", releaseOf(t, layerOf(t, compression.GZip, entry{list, images})))
	s.Forget()
	dir := t.TempDir()
	set := discover(t, source.NewReader(source.Options{CacheDir: dir}), release)
	require.Len(t, set.Available, 10)
	assert.Empty(t, set.Problems)
	assert.Equal(t, "rhel-0", set.Available[0].Name)
	assert.True(t, strings.HasPrefix(string(set.Available[0].OSImage), s.Host+"/rhel-0@sha256:"), set.Available[0].OSImage)
	// Of each of 20 images and of the release: is there a registry, a manifest, a config; and the
	// release's layer.
	assert.Len(t, s.Requests(), 21*3+1)
	assert.Less(t, s.Sent(), int64(1<<20), "bytes")

	s.Forget()
	again := discover(t, source.NewReader(source.Options{CacheDir: dir}), release)
	assert.Equal(t, set, again)
	assert.Empty(t, s.Requests(), "a second start asks for nothing that can't have changed")
}

func TestReleaseReadsOneLayer(t *testing.T) {
	t.Parallel()
	content := references("rhel-coreos", "quay.io/a/b@sha256:"+strings.Repeat("a", 64))
	const count, size = 200, 50_000
	for name, how := range map[string]compression.Compression{"gzip": compression.GZip, "zstd": compression.ZStd, "plain": compression.None} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := registrytest.New(t, nil)
			var layers []v1.Layer
			for i := range count - 1 {
				layers = append(layers, layerOf(t, compression.None, entry{fmt.Sprintf("usr/bin/%d", i), strings.Repeat("x", size)}))
			}
			layers = append(layers, layerOf(t, how, entry{"release-manifests/", ""}, entry{list, content}))
			release := s.Push(t, "release:1", releaseOf(t, layers...))
			s.Forget()
			found, err := source.NewReader(source.Options{}).Release(t.Context(), access(), release)
			require.NoError(t, err)
			require.Len(t, found.Tags, 1)
			assert.Equal(t, 2, s.Count(http.MethodGet, "/blobs/"), "the config and one layer of %d", count)
			assert.Less(t, s.Sent(), int64(2*size), "bytes")
		})
	}
}

func TestReleaseSaysWhichBootImagesItAllows(t *testing.T) {
	t.Parallel()
	const limits = `{"rhelVersion":"9.6"}`
	layer := layerOf(t, compression.GZip, entry{list, references("rhel-coreos", "quay.io/a/b@sha256:"+strings.Repeat("a", 64))})
	plain := releaseOf(t, layer)
	labelled, err := mutate.Config(plain, v1.Config{Labels: map[string]string{mcfgv1.AnnotationBootImageSkewLimits: limits}})
	require.NoError(t, err)
	annotated, isImage := mutate.Annotations(plain, map[string]string{mcfgv1.AnnotationBootImageSkewLimits: limits}).(v1.Image)
	require.True(t, isImage)
	for name, tt := range map[string]struct {
		image v1.Image
		want  string
	}{"by an annotation": {annotated, limits}, "by a label": {labelled, limits}, "nowhere": {plain, ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := registrytest.New(t, nil)
			release := s.Push(t, "release:1", tt.image)
			found, err := source.NewReader(source.Options{}).Release(t.Context(), access(), release)
			require.NoError(t, err)
			assert.Equal(t, tt.want, found.SkewLimits)
		})
	}
}

func TestReleaseList(t *testing.T) {
	t.Parallel()
	good := references("rhel-coreos", "quay.io/a/b@sha256:"+strings.Repeat("a", 64))
	other := references("rhel-coreos", "quay.io/old/b@sha256:"+strings.Repeat("b", 64))
	tests := map[string]struct {
		layers [][]entry
		want   string // image of the tag
		err    string
	}{
		"in an older layer":              {layers: [][]entry{{{list, good}}, {{"etc/motd", "hello"}}}, want: "quay.io/a/b@"},
		"the newest of two":              {layers: [][]entry{{{list, other}}, {{list, good}}}, want: "quay.io/a/b@"},
		"with a spelling of archives":    {layers: [][]entry{{{"./" + list, good}}}, want: "quay.io/a/b@"},
		"the last of two in a layer":     {layers: [][]entry{{{list, other}, {list, good}}}, want: "quay.io/a/b@"},
		"nowhere":                        {layers: [][]entry{{{"etc/motd", "hello"}}}, err: "it has no file /release-manifests/image-references, and so is no release image"},
		"removed":                        {layers: [][]entry{{{list, good}}, {{"release-manifests/.wh.image-references", ""}}}, err: "layer 2 of 2: a layer of it removes the file"},
		"removed with its folder":        {layers: [][]entry{{{list, good}}, {{".wh.release-manifests", ""}}}, err: "layer 2 of 2: a layer of it removes the file"},
		"removed by an opaque folder":    {layers: [][]entry{{{list, good}}, {{"release-manifests/.wh..wh..opq", ""}}}, err: "layer 2 of 2: a layer of it removes the file"},
		"an opaque folder that has it":   {layers: [][]entry{{{list, other}}, {{"release-manifests/.wh..wh..opq", ""}, {list, good}}}, want: "quay.io/a/b@"},
		"a list of something else":       {layers: [][]entry{{{list, `{"kind":"Pod"}`}}}, err: `it is of kind "Pod", and has to be an ImageStream`},
		"a list that is no JSON or YAML": {layers: [][]entry{{{list, "{\x00"}}}, err: "reading the list of images"},
		"an empty list":                  {layers: [][]entry{{{list, `{"kind":"ImageStream"}`}}}, err: "reading the list of images: it is empty"},
		"a folder in its place":          {layers: [][]entry{{{list + "/", ""}}}, err: "/release-manifests/image-references is no regular file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := registrytest.New(t, nil)
			var layers []v1.Layer
			for _, entries := range tt.layers {
				layers = append(layers, layerOf(t, compression.GZip, entries...))
			}
			release := s.Push(t, "release:1", releaseOf(t, layers...))
			found, err := source.NewReader(source.Options{}).Release(t.Context(), access(), release)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				require.ErrorContains(t, err, release)
				assert.True(t, fault.IsTerminal(err), "it will be the same the next time")
				return
			}
			require.NoError(t, err)
			require.Len(t, found.Tags, 1)
			assert.True(t, strings.HasPrefix(found.Tags[0].Image, tt.want), found.Tags[0].Image)
		})
	}
}

func TestReleaseErrorsAreClassified(t *testing.T) {
	t.Parallel()
	s := registrytest.New(t, nil)
	reader := source.NewReader(source.Options{})
	release := s.Push(t, "release:1", releaseOf(t, layerOf(t, compression.GZip, entry{list, references("rhel-coreos", "quay.io/a/b@sha256:"+strings.Repeat("a", 64))})))

	_, err := reader.Release(t.Context(), access(), s.Host+"/release@sha256:"+strings.Repeat("0", 64))
	assert.True(t, fault.IsTerminal(err), "not found: %v", err)
	_, err = reader.Release(t.Context(), access(), s.Host+"/release@sha256:0123")
	assert.True(t, fault.IsTerminal(err))
	require.ErrorContains(t, err, "its digest has 4 characters, and has to have 64")

	s.Answer(failing("/blobs/", http.StatusBadGateway))
	_, err = reader.Release(t.Context(), access(), release)
	assert.True(t, fault.IsTransient(err), "an outage passes: %v", err)
	s.Answer(nil)
	_, err = reader.Release(t.Context(), access(), release)
	require.NoError(t, err, "and is not remembered")
}

func TestInspectNamesTheUnreadableImage(t *testing.T) {
	t.Parallel()
	s := registrytest.New(t, nil)
	good := s.Push(t, "os:1", labelled(t, osLabels("rhel-9")))
	gone := s.Host + "/gone@sha256:" + strings.Repeat("0", 64)
	broken := s.Host + "/broken@sha256:" + strings.Repeat("1", 64)
	s.Answer(failing("/broken/", http.StatusServiceUnavailable))
	g, err := source.NewReader(source.Options{}).Inspect(t.Context(), access(), streams.FromSpec([]mcfgv1.OSImageStreamImages{
		{Name: "rhel-9", OSImage: mcfgv1.ImageReferenceFormat(good)},
		{Name: "gone", OSImage: mcfgv1.ImageReferenceFormat(gone)},
		{Name: "broken", OSImage: mcfgv1.ImageReferenceFormat(broken)},
		{Name: "short", OSImage: "quay.io/a/b@sha256:0123"},
	}))
	require.Error(t, err)
	assert.True(t, fault.IsTransient(err))
	require.Len(t, g.Images, 4)
	assert.Nil(t, g.Images[0].Problem)
	assert.Equal(t, good, g.Images[0].Pinned)
	assert.Equal(t, map[string]string{"io.openshift.os.streamclass": "rhel-9", "containers.bootc": "1"}, g.Images[0].Labels, "what matters")
	assert.Equal(t, mcfgv1.ReasonSourceFailed, g.Images[1].Problem.Reason)
	assert.Contains(t, g.Images[1].Problem.Message, `osImage of "gone" of spec.images: `)
	assert.Equal(t, mcfgv1.ReasonRetrying, g.Images[2].Problem.Reason)
	assert.Equal(t, mcfgv1.StreamDigestsInvalid, g.Images[3].Problem.Type, "found without asking")
}

func TestTagsAreFollowedOnASchedule(t *testing.T) {
	t.Parallel()
	s := registrytest.New(t, nil)
	clock := clocktesting.NewFakePassiveClock(t0)
	reader := source.NewReader(source.Options{Clock: clock, TagInterval: time.Hour})
	first := s.Push(t, "os:stable", labelled(t, osLabels("rhel-9")))
	spec := streams.FromSpec([]mcfgv1.OSImageStreamImages{{Name: "rhel-9", OSImage: mcfgv1.ImageReferenceFormat(s.Host + "/os:stable")}})
	look := func() string {
		g, err := reader.Inspect(t.Context(), access(), spec)
		require.NoError(t, err)
		next, ok := reader.NextLook(g)
		require.True(t, ok)
		assert.GreaterOrEqual(t, next.Sub(clock.Now()), 48*time.Minute)
		assert.LessOrEqual(t, next.Sub(clock.Now()), 72*time.Minute)
		return g.Images[0].Pinned
	}
	assert.Equal(t, first, look())
	moved := labelled(t, map[string]string{"io.openshift.os.streamclass": "rhel-9", "containers.bootc": "true"})
	second := s.Push(t, "os:stable", moved)
	require.NotEqual(t, first, second)
	s.Forget()
	g, err := reader.Inspect(t.Context(), access(), spec)
	require.NoError(t, err)
	assert.Equal(t, first, g.Images[0].Pinned, "no one asks before it is time")
	assert.Empty(t, s.Requests())
	anew := access()
	anew.Anew = true
	g, err = reader.Inspect(t.Context(), anew, spec)
	require.NoError(t, err)
	assert.Equal(t, second, g.Images[0].Pinned, "unless someone wants to know")
	clock.SetTime(t0.Add(2 * time.Hour))
	assert.Equal(t, second, look())
	s.Forget()
	clock.SetTime(t0.Add(4 * time.Hour))
	assert.Equal(t, second, look())
	assert.Len(t, s.Requests(), 2, "a tag that did not move costs a HEAD")
}

func TestPinnedImagesNeedNoLaterLook(t *testing.T) {
	t.Parallel()
	_, ok := source.NewReader(source.Options{}).NextLook(streams.FromArguments("quay.io/a/b@sha256:"+strings.Repeat("a", 64), ""))
	assert.False(t, ok)
}

func TestMirrorsAreAskedFirst(t *testing.T) {
	t.Parallel()
	s, mirror := registrytest.New(t, nil), registrytest.New(t, nil)
	pinned := s.Push(t, "team/os:1", labelled(t, osLabels("rhel-9")))
	rule := mirrors.Entry{Source: s.Host + "/team", Mirrors: []string{mirror.Host + "/copy"}}
	spec := streams.FromSpec([]mcfgv1.OSImageStreamImages{{Name: "rhel-9", OSImage: mcfgv1.ImageReferenceFormat(pinned)}})
	s.Forget()

	_, err := source.NewReader(source.Options{}).Inspect(t.Context(), access(rule), spec)
	require.NoError(t, err, "the mirror has nothing")
	assert.NotEmpty(t, s.Requests())

	mirror.Push(t, "copy/os:1", labelled(t, osLabels("rhel-9")))
	s.Forget()
	g, err := source.NewReader(source.Options{}).Inspect(t.Context(), access(rule), spec)
	require.NoError(t, err)
	assert.Equal(t, pinned, g.Images[0].Pinned, "nodes have mirrors of their own")
	assert.Empty(t, s.Requests())

	rule.MirrorSourcePolicy = "NeverContactSource"
	elsewhere := s.Push(t, "team/other:1", labelled(t, osLabels("rhel-10")))
	s.Forget()
	g, err = source.NewReader(source.Options{}).Inspect(t.Context(), access(rule), streams.FromSpec([]mcfgv1.OSImageStreamImages{
		{Name: "rhel-10", OSImage: mcfgv1.ImageReferenceFormat(elsewhere)},
	}))
	require.NoError(t, err)
	require.NotNil(t, g.Images[0].Problem)
	assert.Empty(t, s.Requests(), "the source may not be asked")
}

func TestInspectTakesTheFirstImageOfAnIndex(t *testing.T) {
	t.Parallel()
	s := registrytest.New(t, nil)
	image := labelled(t, osLabels("rhel-9"))
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: labelled(t, nil), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	pinned := s.Push(t, "os:1", index)
	g, err := source.NewReader(source.Options{}).Inspect(t.Context(), access(), streams.FromArguments(pinned, ""))
	require.NoError(t, err)
	require.Nil(t, g.Images[0].Problem)
	assert.Equal(t, pinned, g.Images[0].Pinned, "the index, for all architectures")
	assert.Equal(t, "rhel-9", g.Images[0].Labels["io.openshift.os.streamclass"])
}

func TestImageThatWaitsForOtherSuspects(t *testing.T) {
	t.Parallel()
	s := registrytest.New(t, nil)
	image := s.Push(t, "os:1", labelled(t, osLabels("rhel-9")))
	_, digest, _ := strings.Cut(image, "@")
	dir, other := t.TempDir(), inwork.Work{Object: "other"}
	begin := func(log *inwork.Log, w inwork.Work) (end func()) {
		end, err := log.Begin(t.Context(), w)
		require.NoError(t, err)
		return end
	}
	killed, err := inwork.Open(dir)
	require.NoError(t, err)
	begin(killed, other)
	begin(killed, inwork.Work{Object: fmt.Sprintf("image %q", image), Version: digest})

	log, err := inwork.Open(dir)
	require.NoError(t, err)
	end := begin(log, other)
	r := source.NewReader(source.Options{InWork: log})
	read := func() (streams.Found, error) {
		g, err := r.Inspect(t.Context(), access(), streams.FromSpec([]mcfgv1.OSImageStreamImages{{Name: "rhel-9", OSImage: mcfgv1.ImageReferenceFormat(image)}}))
		return g.Images[0], err
	}
	found, err := read()
	require.Equal(t, mcfgv1.ReasonWaitingForTurn, fault.Reason(err), "it is tried again")
	assert.Equal(t, mcfgv1.ReasonRetrying, found.Problem.Reason)
	end()
	found, err = read()
	require.NoError(t, err)
	assert.Equal(t, image, found.Pinned)
}
