package pools

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/nodes"
)

func TestLabelsOf(t *testing.T) {
	t.Parallel()
	set := newStream("rhel-9", "rhel-10")
	nine := map[string]string{"node.openshift.io/ID": "rhcos", "node.openshift.io/version_ID": "9.6"}
	set.Status.AvailableStreams[0].NodeLabels = nine
	config := func(image, stream string) *mcfgv1.MachineConfig {
		mc := &mcfgv1.MachineConfig{Spec: mcfgv1.MachineConfigSpec{OSImageURL: image}}
		if stream != "" {
			metav1.SetMetaDataAnnotation(&mc.ObjectMeta, mcfgv1.AnnotationOSImageStream, stream)
		}
		return mc
	}
	of9 := config(streamImage("rhel-9"), "rhel-9")
	built := func(on string) []mcfgv1alpha1.MachineOSImage {
		return []mcfgv1alpha1.MachineOSImage{{Spec: mcfgv1alpha1.MachineOSImageSpec{
			PullSpec: mcfgv1.ImageDigestFormat(pinned("7")), BaseOSImagePullSpec: mcfgv1.ImageDigestFormat(on),
		}}}
	}
	toY := annotated(mcfgv1.AnnotationDesiredConfig, "y")
	tests := map[string]struct {
		node   *corev1.Node
		config *mcfgv1.MachineConfig
		images []mcfgv1alpha1.MachineOSImage
		want   map[string]string
		known  bool
	}{
		"arrived":                         {newNode("n", worker, having("x")), of9, nil, nine, true},
		"on its way to another":           {newNode("n", worker, having("x"), toY), of9, nil, nil, false},
		"still at work":                   {newNode("n", worker, having("x"), inState(mcfgv1.NodeStateWorking, "")), of9, nil, nil, false},
		"failed":                          {newNode("n", worker, having("x"), inState(mcfgv1.NodeStateDegraded, "r")), of9, nil, nil, false},
		"a stream without labels":         {newNode("n", worker, having("x")), config(streamImage("rhel-10"), "rhel-10"), nil, nil, true},
		"on no stream":                    {newNode("n", worker, having("x")), config("quay.io/own/os:1", ""), nil, nil, true},
		"on an earlier image":             {newNode("n", worker, having("x")), config(pinned("8"), "rhel-9"), nil, nil, false},
		"the stream is gone":              {newNode("n", worker, having("x")), config(pinned("8"), "rhel-8"), nil, nil, false},
		"with a built image":              {newNode("n", worker, having("x"), havingImage("7")), of9, built(streamImage("rhel-9")), nine, true},
		"with an image built on another":  {newNode("n", worker, having("x"), havingImage("7")), of9, built(pinned("1")), nil, true},
		"with an image that no one knows": {newNode("n", worker, having("x"), havingImage("7")), of9, nil, nil, false},
		"with an image of unknown origin": {newNode("n", worker, having("x"), havingImage("7")), of9, built(""), nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			observed := nodes.Observe(tt.node)
			labels, known := labelsOf(&observed, tt.config, tt.images, set)
			assert.Equal(t, tt.known, known)
			assert.Equal(t, tt.want, labels)
		})
	}
}
