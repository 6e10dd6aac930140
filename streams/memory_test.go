package streams

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// remembering writes down a stream for a pool.
func remembering(p *mcfgv1.MachineConfigPool, stream string) *mcfgv1.MachineConfigPool {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, mcfgv1.AnnotationRememberedStream, stream)
	return p
}

// configured gives a pool a configuration, as one that has been rendered has.
func configured(p *mcfgv1.MachineConfigPool) *mcfgv1.MachineConfigPool {
	p.Spec.Configuration.Name = "rendered-" + p.Name
	return p
}

// rendered makes the configuration of a pool with an OS image; of is its stream, which may be
// empty.
func rendered(image, of string) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{Spec: mcfgv1.MachineConfigSpec{OSImageURL: image, BaseOSExtensionsContainerImage: image + "-ext"}}
	if of != "" {
		metav1.SetMetaDataAnnotation(&mc.ObjectMeta, mcfgv1.AnnotationOSImageStream, of)
	}
	return mc
}

const el9, el10 = "5.14.0-427.37.1.el9_4.x86_64", "6.12.0-55.9.1.el10_0.x86_64"

func TestWhatIsRemembered(t *testing.T) {
	t.Parallel()
	const byRecord = "the pool is on it, and no other stream is requested"
	const byNodes = "the pool's nodes are on it, and no other stream is requested"
	const byImage = "the pool's configuration has its OS image, and no other stream is requested"
	both := listing("rhel-10", "rhel-9")
	tests := map[string]struct {
		subject Subject
		streams *mcfgv1.OSImageStream
		want    string
		reason  string
	}{
		"what was written down, before a node has arrived": {
			Subject{Pool: remembering(pool("worker", "", ""), "rhel-9")}, both, "rhel-9", byRecord,
		},
		"what was written down, and not what the nodes still are on": {
			Subject{Pool: remembering(pool("worker", "", "rhel-9"), "rhel-10")}, both, "rhel-10", byRecord,
		},
		"what the nodes are on, where the annotation was lost": {
			Subject{Pool: pool("worker", "", "rhel-9"), Rendered: rendered("os/rhel-10", "rhel-10")}, both, "rhel-9", byNodes,
		},
		"a custom pool stays too": {
			Subject{Pool: remembering(pool("infra", "", ""), "rhel-9"), Worker: remembering(pool("worker", "", ""), "rhel-10")}, both, "rhel-9", byRecord,
		},
		"the stream that the configuration is marked with": {
			Subject{Pool: configured(pool("worker", "", "")), Rendered: rendered("os/old", "rhel-9")}, both, "rhel-9", byImage,
		},
		"the stream that has the configuration's OS image": {
			Subject{Pool: configured(pool("worker", "", "")), Rendered: rendered("os/rhel-9", ""), Kernels: []string{el10}}, both, "rhel-9", byImage,
		},
		"the nodes' version, for a pool from before streams": {
			Subject{Pool: configured(pool("worker", "", "")), Rendered: rendered("os/old", ""), Kernels: []string{el9, el9}},
			both, "rhel-9",
			"the pool's nodes run version 9, and no other stream is requested",
		},
		"the default, where several are of that version": {
			Subject{Pool: configured(pool("worker", "", "")), Kernels: []string{el9}},
			listing("rhel9-coreos", "rhel-9", "centos-9"), "rhel9-coreos",
			"the pool's nodes run version 9, and no other stream is requested",
		},
		"the default, where kernels say nothing": {
			Subject{Pool: configured(pool("worker", "", "")), Kernels: []string{"6.1.0-18-amd64", "6.14.9-300.fc42.x86_64"}}, both, "rhel-10", "it is the default",
		},
		"the default, where the streams are of no version": {
			Subject{Pool: configured(pool("worker", "", "")), Kernels: []string{el9}}, listing("stream-coreos"), "stream-coreos", "it is the default",
		},
		"the default for a new pool, whatever its nodes run": {
			Subject{Pool: pool("infra", "", ""), Kernels: []string{el9}}, both, "rhel-10", "it is the default",
		},
		"none, while there are no streams": {Subject{Pool: configured(pool("worker", "", "")), Kernels: []string{el9}}, nil, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ForPool(tt.subject, tt.streams)
			require.NoError(t, err)
			assert.Equal(t, []any{tt.want, tt.reason, false, false}, []any{got.Name, got.Reason, got.Explicit, got.Frozen})
		})
	}
}

func TestImageOfNodesIsNoStream(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kernels []string
		streams *mcfgv1.OSImageStream
		message string
	}{
		"none is of that version": {
			[]string{el9},
			listing("rhel-10"),
			"the pool's nodes run version 9, by their kernels, and their stream is unknown; set spec.osImageStream of the pool; available are: rhel-10",
		},
		"two are, and neither is the default": {
			[]string{el9},
			listing("rhel-10", "rhel-9", "centos-9"),
			"the pool's nodes run version 9, by their kernels, and their stream is unknown; set spec.osImageStream of the pool; available are: rhel-10, rhel-9, centos-9",
		},
		"the nodes run two": {
			[]string{el10, el9, el9},
			listing("rhel-10", "rhel-9"),
			"the pool's nodes run version 9 and 10, by their kernels, and their stream is unknown; set spec.osImageStream of the pool; available are: rhel-10, rhel-9",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ForPool(Subject{Pool: configured(pool("worker", "", "")), Kernels: tt.kernels}, tt.streams)
			var refused *Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, Error{Reason: "StreamNotFound", Message: tt.message}, *refused)
		})
	}
}

func TestARemovedStream(t *testing.T) {
	t.Parallel()
	gone := listing("rhel-10")
	on9 := func() *mcfgv1.MachineConfigPool {
		return configured(remembering(pool("worker", "", "rhel-9"), "rhel-9"))
	}
	naming9 := on9()
	naming9.Spec.OSImageStream.Name = "rhel-9"
	unmarked := configured(pool("worker", "", "rhel-9"))
	tests := map[string]struct {
		subject Subject
		streams *mcfgv1.OSImageStream
		frozen  bool
	}{
		"the pool keeps its images":                                {Subject{Pool: on9(), Rendered: rendered("os/9", "rhel-9")}, gone, true},
		"also where it names the stream":                           {Subject{Pool: naming9, Rendered: rendered("os/9", "rhel-9")}, gone, true},
		"also where the annotation was lost":                       {Subject{Pool: unmarked, Rendered: rendered("os/9", "")}, gone, true},
		"its configuration is gone too":                            {Subject{Pool: on9()}, gone, false},
		"its configuration has no OS image":                        {Subject{Pool: on9(), Rendered: rendered("", "rhel-9")}, gone, false},
		"its configuration is of another stream":                   {Subject{Pool: on9(), Rendered: rendered("os/8", "rhel-8")}, gone, false},
		"no one knows any stream":                                  {Subject{Pool: on9(), Rendered: rendered("os/9", "rhel-9")}, listing(), false},
		"a pool that was never on it, and follows the worker pool": {Subject{Pool: configured(pool("infra", "", "")), Worker: naming9, Rendered: rendered("os/9", "")}, gone, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ForPool(tt.subject, tt.streams)
			if !tt.frozen {
				var refused *Error
				require.ErrorAs(t, err, &refused)
				assert.Equal(t, []string{"StreamNotFound", "rhel-9"}, []string{refused.Reason, refused.Stream})
				return
			}
			require.NoError(t, err)
			assert.True(t, got.Frozen)
			assert.Equal(t, mcfgv1.OSImageStreamSet{Name: "rhel-9", OSImage: "os/9", OSExtensionsImage: "os/9-ext"}, got.Images)
		})
	}
}

func TestAStreamThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	streams := listing("rhel-9")
	streams.Status.UnusableStreams = []mcfgv1.UnusableOSImageStream{{Name: "rhel-10", Reason: "ExtensionsImageMissing", Message: "no tag has it"}, {Name: "x", Reason: "NameInvalid"}}
	_, err := ForPool(Subject{Pool: pool("worker", "rhel-10", "")}, streams)
	require.EqualError(t, err, `stream "rhel-10" cannot be used: ExtensionsImageMissing: no tag has it (the pool's spec.osImageStream names it); available are: rhel-9`)
	_, err = ForPool(Subject{Pool: pool("worker", "x", "")}, streams)
	require.EqualError(t, err, `stream "x" cannot be used: NameInvalid (the pool's spec.osImageStream names it); available are: rhel-9`)
}

func TestDowngradesAreRefused(t *testing.T) {
	t.Parallel()
	both := listing("rhel-9", "rhel-10")
	tests := map[string]struct {
		subject Subject
		who     string // "" is allowed
	}{
		"from what the pool was rendered with, before any node": {
			Subject{Pool: remembering(pool("worker", "rhel-9", ""), "rhel-10")}, "the pool is",
		},
		"from what its nodes are on": {Subject{Pool: pool("worker", "rhel-9", "rhel-10")}, "the pool's nodes are"},
		"from what its nodes are on, despite a changed annotation": {
			Subject{Pool: remembering(pool("worker", "", "rhel-10"), "rhel-9")}, "the pool's nodes are",
		},
		"from what one node is on, when all records are lost": {
			Subject{Pool: pool("worker", "", ""), On: []string{"rhel-9", "rhel-10"}}, "nodes of the pool are",
		},
		"from what nodes that a new pool was given are on":   {Subject{Pool: pool("infra", "rhel-9", ""), On: []string{"rhel-10"}}, "nodes of the pool are"},
		"a node of another pool does not hold up the others": {Subject{Pool: remembering(pool("infra", "", "rhel-9"), "rhel-9"), On: []string{"rhel-9", "rhel-10"}}, ""},
		"forward with nodes on both":                         {Subject{Pool: remembering(pool("infra", "rhel-10", "rhel-9"), "rhel-9"), On: []string{"rhel-9", "rhel-10"}}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ForPool(tt.subject, both)
			if tt.who == "" {
				require.NoError(t, err)
				return
			}
			var refused *Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, []string{"StreamDowngrade", "rhel-9"}, []string{refused.Reason, refused.Stream})
			assert.Contains(t, refused.Message, `is of an older major version than "rhel-10", which `+tt.who+" on, and nodes cannot go back")
		})
	}
}

func TestKernelMajor(t *testing.T) {
	t.Parallel()
	for kernel, want := range map[string]int{
		el9: 9, el10: 10, "5.14.0-1.el9.aarch64+64k": 9, "4.18.0-372.el8_6.x86_64": 8,
		"6.14.9-300.fc42.x86_64": 0, "6.1.0-18-amd64": 0, "": 0, "5.14.elder": 0, "5.14.el": 0,
	} {
		got, ok := kernelMajor(kernel)
		assert.Equal(t, want, got, kernel)
		assert.Equal(t, want > 0, ok, kernel)
	}
}
