package streams

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// pool makes a pool that names a stream and is on one; either may be empty.
func pool(name, named, on string) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.OSImageStream.Name, p.Status.OSImageStream.Name = named, on
	return p
}

// listing makes an OSImageStream of which the first stream is the default.
func listing(names ...string) *mcfgv1.OSImageStream {
	s := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: mcfgv1.OSImageStreamName}}
	var sets []mcfgv1.OSImageStreamSet
	for _, name := range names {
		sets = append(sets, set(name))
	}
	if len(names) > 0 {
		s.Status.SetStreams(sets, names[0])
	}
	return s
}

func set(name string) mcfgv1.OSImageStreamSet {
	return mcfgv1.OSImageStreamSet{
		Name: name, OSImage: mcfgv1.ImageDigestFormat("os/" + name), OSExtensionsImage: mcfgv1.ImageDigestFormat("ext/" + name),
	}
}

func TestForPool(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pool, worker *mcfgv1.MachineConfigPool
		streams      *mcfgv1.OSImageStream
		want         string // stream
		explicit     bool
		reason       string
	}{
		"the default for a new pool": {
			pool: pool("worker", "", ""), streams: listing("rhel-10", "rhel-9"), want: "rhel-10", reason: "it is the default",
		},
		"what the nodes are on, when the default has moved": {
			pool: pool("worker", "", "rhel-9"), streams: listing("rhel-10", "rhel-9"), want: "rhel-9",
			reason: "the pool's nodes are on it, and no other stream is requested",
		},
		"what the pool names, whatever its nodes are on": {
			pool: pool("worker", "rhel-10", "rhel-9"), streams: listing("rhel-9", "rhel-10"), want: "rhel-10", explicit: true,
			reason: "the pool's spec.osImageStream names it",
		},
		"what the pool names, also for a custom pool": {
			pool: pool("infra", "rhel-10", ""), worker: pool("worker", "rhel-9", ""), streams: listing("rhel-9", "rhel-10"),
			want: "rhel-10", explicit: true, reason: "the pool's spec.osImageStream names it",
		},
		"the worker pool's name, for a custom pool that names none": {
			pool: pool("infra", "", "rhel-9"), worker: pool("worker", "rhel-10", "rhel-9"), streams: listing("rhel-9", "rhel-10"),
			want: "rhel-10", explicit: true, reason: `spec.osImageStream of the pool "worker" names it, and this pool names none`,
		},
		"the worker pool's nodes mean nothing to a new custom pool": {
			pool: pool("infra", "", ""), worker: pool("worker", "", "rhel-9"), streams: listing("rhel-10", "rhel-9"),
			want: "rhel-10", reason: "it is the default",
		},
		"what the worker pool names means nothing to master": {
			pool: pool("master", "", ""), worker: pool("worker", "rhel-10", ""), streams: listing("rhel-9", "rhel-10"),
			want: "rhel-9", reason: "it is the default",
		},
		"what the worker pool names means nothing to arbiter": {
			pool: pool("arbiter", "", ""), worker: pool("worker", "rhel-10", ""), streams: listing("rhel-9", "rhel-10"),
			want: "rhel-9", reason: "it is the default",
		},
		"a custom pool without a worker pool": {
			pool: pool("infra", "", ""), streams: listing("rhel-9"), want: "rhel-9", reason: "it is the default",
		},
		"none without an OSImageStream":                     {pool: pool("worker", "", "")},
		"none while the OSImageStream lists none":           {pool: pool("worker", "", ""), streams: listing()},
		"a version forward":                                 {pool: pool("worker", "rhel-10", "rhel-9"), streams: listing("rhel-10"), want: "rhel-10", explicit: true, reason: "the pool's spec.osImageStream names it"},
		"another family, of which names say nothing":        {pool: pool("worker", "centos-9", "rhel-10"), streams: listing("centos-9"), want: "centos-9", explicit: true, reason: "the pool's spec.osImageStream names it"},
		"another name of the same version":                  {pool: pool("worker", "rhel9-coreos", "rhel-9"), streams: listing("rhel9-coreos"), want: "rhel9-coreos", explicit: true, reason: "the pool's spec.osImageStream names it"},
		"a stream whose life has ended is still followed":   {pool: pool("worker", "", "rhel-9"), streams: ended(listing("rhel-9")), want: "rhel-9", reason: "the pool's nodes are on it, and no other stream is requested"},
		"a stream without an extensions image is available": {pool: pool("worker", "", ""), streams: bare(listing("rhel-9")), want: "rhel-9", reason: "it is the default"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ForPool(Subject{Pool: tt.pool, Worker: tt.worker}, tt.streams)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got.Name)
			assert.Equal(t, tt.want, got.Images.Name, "the images are the stream's")
			assert.Equal(t, tt.explicit, got.Explicit)
			assert.Equal(t, tt.reason, got.Reason)
		})
	}
}

func ended(s *mcfgv1.OSImageStream) *mcfgv1.OSImageStream {
	s.Status.AvailableStreams[0].Lifecycle = mcfgv1.StreamEndOfLife
	return s
}

func bare(s *mcfgv1.OSImageStream) *mcfgv1.OSImageStream {
	s.Status.AvailableStreams[0].OSExtensionsImage = ""
	return s
}

func TestForPoolRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pool, worker   *mcfgv1.MachineConfigPool
		streams        *mcfgv1.OSImageStream
		reason, stream string
		message        string
	}{
		"a named stream that is not available": {
			pool: pool("worker", "rhel-11", ""), streams: listing("rhel-9", "rhel-10"), reason: "StreamNotFound", stream: "rhel-11",
			message: `stream "rhel-11" is not available (the pool's spec.osImageStream names it); available are: rhel-9, rhel-10`,
		},
		"a named stream without an OSImageStream": {
			pool: pool("worker", "rhel-9", ""), reason: "StreamNotFound", stream: "rhel-9",
			message: `stream "rhel-9" is not available (the pool's spec.osImageStream names it); OSImageStream "cluster" lists none`,
		},
		"a named stream while the OSImageStream lists none": {
			pool: pool("worker", "rhel-9", ""), streams: listing(), reason: "StreamNotFound", stream: "rhel-9",
			message: `stream "rhel-9" is not available (the pool's spec.osImageStream names it); OSImageStream "cluster" lists none`,
		},
		"the worker pool's stream, for a custom pool": {
			pool: pool("infra", "", ""), worker: pool("worker", "rhel-11", ""), streams: listing("rhel-9"), reason: "StreamNotFound", stream: "rhel-11",
			message: `stream "rhel-11" is not available (spec.osImageStream of the pool "worker" names it, and this pool names none); available are: rhel-9`,
		},
		"a stream that was removed under the pool": {
			pool: pool("worker", "", "rhel-9"), streams: listing("rhel-10"), reason: "StreamNotFound", stream: "rhel-9",
			message: `stream "rhel-9" is not available (the pool's nodes are on it, and no other stream is requested); available are: rhel-10`,
		},
		"a pool on a stream whose OSImageStream is gone": {
			pool: pool("worker", "", "rhel-9"), reason: "StreamNotFound", stream: "rhel-9",
			message: `stream "rhel-9" is not available (the pool's nodes are on it, and no other stream is requested); OSImageStream "cluster" lists none`,
		},
		"an older version that comes from the worker pool": {
			pool: pool("infra", "", "rhel-10"), worker: pool("worker", "rhel-9", ""), streams: listing("rhel-9", "rhel-10"),
			reason: "StreamDowngrade", stream: "rhel-9",
			message: `stream "rhel-9" (spec.osImageStream of the pool "worker" names it, and this pool names none) is of an older major version than "rhel-10", ` +
				`which the pool's nodes are on, and nodes cannot go back: name another in spec.osImageStream of the pool`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			choice, err := ForPool(Subject{Pool: tt.pool, Worker: tt.worker}, tt.streams)
			assert.Zero(t, choice)
			var refused *Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, tt.reason, refused.Reason)
			assert.Equal(t, tt.stream, refused.Stream)
			assert.Equal(t, tt.message, err.Error())
		})
	}
}

func TestCheckRelease(t *testing.T) {
	t.Parallel()
	of := func(release string) *mcfgv1.OSImageStream {
		s := listing("rhel-9")
		s.Annotations = map[string]string{mcfgv1.AnnotationReleaseImageVersion: release}
		return s
	}
	require.NoError(t, CheckRelease(nil, "4.20"))
	require.NoError(t, CheckRelease(listing("rhel-9"), "4.20"), "people write none")
	require.NoError(t, CheckRelease(of("4.20"), ""), "plain Kubernetes has none")
	require.NoError(t, CheckRelease(of("4.20"), "4.20"))
	err := CheckRelease(of("4.19"), "4.20")
	var outdated *OutdatedError
	require.ErrorAs(t, err, &outdated)
	assert.Equal(t, OutdatedError{Release: "4.19", Want: "4.20"}, *outdated)
	assert.EqualError(t, err, `OSImageStream "cluster" is of release "4.19", this controller of "4.20": images of two releases are not mixed`)
}

func TestIsDowngrade(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		from, to string
		want     bool
	}{
		"back":                             {"rhel-10", "rhel-9", true},
		"back, in the older spelling":      {"rhel10-coreos", "rhel-9", true},
		"forward":                          {"rhel-9", "rhel-10", false},
		"the same":                         {"rhel-9", "rhel-9", false},
		"another family":                   {"rhel-10", "centos-9", false},
		"no number":                        {"rhel-10", "rhel", false},
		"no number before":                 {"fedora-coreos", "fedora-40", false},
		"no family":                        {"10", "9", false},
		"a pool that was on none":          {"", "rhel-9", false},
		"a number that is no version":      {"rhel-99999999999999999999", "rhel-9998", true},
		"a minor version is not looked at": {"rhel-9.6", "rhel-9.4", false},
		"back, from a variant":             {"rhel-10-nvidia", "rhel-9", true},
		"from a variant to the plain one":  {"rhel-10-nvidia", "rhel-10", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, isDowngrade(tt.from, tt.to))
		})
	}
}
