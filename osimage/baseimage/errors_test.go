package baseimage_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/osimage/baseimage"
)

func TestErrorsOfRegistriesAreClassified(t *testing.T) {
	t.Parallel()
	tests := map[int]string{
		http.StatusUnauthorized: mcfgv1.ReasonImageNotFound, http.StatusForbidden: mcfgv1.ReasonImageNotFound,
		http.StatusNotFound: mcfgv1.ReasonImageNotFound, http.StatusTooManyRequests: "", http.StatusInternalServerError: "",
		http.StatusBadGateway: "", http.StatusServiceUnavailable: "", http.StatusGatewayTimeout: "",
	}
	image := base(t)
	manifest, err := image.Manifest()
	require.NoError(t, err)
	for status, reason := range tests {
		for what, blob := range map[string]v1.Hash{"configuration": manifest.Config.Digest, "layer": manifest.Layers[2].Digest} {
			t.Run(strconv.Itoa(status)+" for a "+what, func(t *testing.T) {
				t.Parallel()
				s := serve(t)
				ref := s.push(t, base(t))
				s.set(func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, blob.String()) {
						return false
					}
					w.WriteHeader(status)
					return true
				})
				_, err := baseimage.New(baseimage.Options{}).Index(t.Context(), s.pull(t.Context(), t, ref))
				require.ErrorContains(t, err, strconv.Itoa(status))
				require.Equal(t, reason != "", fault.IsTerminal(err), "%v", err)
				require.Equal(t, reason, fault.Reason(err))
			})
		}
	}
}

func TestNoRegistryIsTransient(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ref := s.push(t, base(t))
	image := s.pull(t.Context(), t, ref)
	s.set(func(http.ResponseWriter, *http.Request) bool {
		panic(http.ErrAbortHandler)
	})
	_, err := baseimage.New(baseimage.Options{}).Index(t.Context(), image)
	require.Error(t, err)
	require.True(t, fault.IsTransient(err))
}

// crafted is an image whose configuration and layers are whatever they are said to be.
type crafted struct {
	v1.Image
	layers  []v1.Layer
	diffIDs []v1.Hash
}

func (c crafted) Layers() ([]v1.Layer, error) { return c.layers, nil }

func (c crafted) ConfigFile() (*v1.ConfigFile, error) {
	return &v1.ConfigFile{RootFS: v1.RootFS{Type: "layers", DiffIDs: c.diffIDs}}, nil
}

// bytesLayer is a layer of any bytes.
type bytesLayer struct {
	v1.Layer
	data []byte
	end  error // after the data; io.EOF where nil
}

func (l bytesLayer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(io.MultiReader(bytes.NewReader(l.data), failing{cmp.Or(l.end, io.EOF)})), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func digestOf(t *testing.T, data []byte) v1.Hash {
	t.Helper()
	hash, _, err := v1.SHA256(bytes.NewReader(data))
	require.NoError(t, err)
	return hash
}

func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buffer.Bytes()
}

func TestBrokenLayers(t *testing.T) {
	t.Parallel()
	good := archive(t, file("etc/passwd", "root"), file("x", noise(3000)))
	evil := archive(t, file("etc/passwd", "evil"), file("x", noise(3000)))
	tests := map[string]struct {
		data     []byte
		end      error
		diffID   v1.Hash
		terminal bool
		want     string
	}{
		"a content that the configuration does not know": {zipped(t, evil), nil, digestOf(t, good), true, "the image is broken: its content has the digest"},
		"an archive that is cut off":                     {zipped(t, good[:1600]), nil, digestOf(t, good[:1600]), true, "unexpected EOF"},
		"a gzip stream that is cut off":                  {zipped(t, good)[:1000], nil, digestOf(t, good), true, "unexpected EOF"},
		"a gzip stream of which little is there":         {zipped(t, good)[:5], nil, digestOf(t, good), true, "unexpected EOF"},
		"a gzip stream with a wrong checksum":            {flipped(zipped(t, good), -6), nil, digestOf(t, good), true, "invalid checksum"},
		"a zstd stream that is none":                     {[]byte("\x28\xb5\x2f\xfdno such thing"), nil, digestOf(t, good), true, "the image is broken"},
		"no archive":                                     {zipped(t, []byte(strings.Repeat("text ", 300))), nil, digestOf(t, good), true, "invalid tar header"},
		"no archive and no gzip":                         {[]byte(strings.Repeat("text ", 300)), nil, digestOf(t, good), true, "invalid tar header"},
		"a digest of no known kind":                      {zipped(t, good), nil, v1.Hash{Algorithm: "md5", Hex: "00"}, true, "unsupported hash"},
		"a transfer that breaks off":                     {zipped(t, good)[:1000], io.ErrUnexpectedEOF, digestOf(t, good), false, "unexpected EOF"},
		"a transfer that breaks off at once":             {nil, io.ErrClosedPipe, digestOf(t, good), false, "closed pipe"},
		"a transfer that breaks off at the very end":     {zipped(t, good), io.ErrClosedPipe, digestOf(t, good), false, "closed pipe"},
		"a transfer that breaks off in another content":  {zipped(t, []byte(strings.Repeat("text ", 300))), io.ErrClosedPipe, digestOf(t, good), false, "invalid tar header"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			template := imageOf(t, layer(t, file("other", "")))
			image := crafted{template, []v1.Layer{bytesLayer{data: test.data, end: test.end}}, []v1.Hash{test.diffID}}
			_, err := baseimage.New(baseimage.Options{CacheDir: dir}).Index(t.Context(), image)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "layer 1")
			require.Equal(t, test.terminal, fault.IsTerminal(err), "%v", err)
			require.Empty(t, names(t, dir))
		})
	}
}

func flipped(data []byte, at int) []byte {
	data[len(data)+at] ^= 1
	return data
}

func TestWrongBytesFromARegistryAreTransient(t *testing.T) {
	t.Parallel()
	s := serve(t)
	image := base(t)
	ref := s.push(t, image)
	s.set(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, digests(t, image)[0].String()) {
			return false
		}
		_, _ = w.Write(flipped(compressed(t, image, 0), -20))
		return true
	})
	_, err := baseimage.New(baseimage.Options{CacheDir: t.TempDir()}).Index(t.Context(), s.pull(t.Context(), t, ref))
	require.ErrorContains(t, err, "verifying")
	require.True(t, fault.IsTransient(err))
}

// compressed are the bytes of a layer.
func compressed(t *testing.T, image v1.Image, number int) []byte {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	r, err := layers[number].Compressed()
	require.NoError(t, err)
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	return data
}

func TestImagesThatContradictThemselves(t *testing.T) {
	t.Parallel()
	one := imageOf(t, layer(t, file("a", "")))
	diffID := digestOf(t, nil)
	for name, image := range map[string]v1.Image{
		"a configuration with too many layers": crafted{one, []v1.Layer{layer(t)}, []v1.Hash{diffID, diffID}},
		"a configuration without layers":       crafted{one, []v1.Layer{layer(t)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := baseimage.New(baseimage.Options{}).Index(t.Context(), image)
			require.ErrorContains(t, err, "is broken: its manifest has 1 layers")
			require.True(t, fault.IsTerminal(err))
		})
	}
	t.Run("something else than an image", func(t *testing.T) {
		t.Parallel()
		s := serve(t)
		artifact := mutate.ConfigMediaType(imageOf(t, layer(t, file("a", ""))), types.MediaType("application/vnd.example"))
		_, err := baseimage.New(baseimage.Options{}).Index(t.Context(), s.remoteOf(t, artifact))
		require.NoError(t, err, "its layers are what counts")
	})
}
