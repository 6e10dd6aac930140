package v1

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSetStreams(t *testing.T) {
	t.Parallel()
	var status OSImageStreamStatus
	status.SetStreams([]OSImageStreamSet{
		{Name: "rhel-9"},
		{Name: "rhel-10", Lifecycle: StreamSupported},
		{Name: "rhel-8", Lifecycle: StreamDeprecated},
		{Name: "rhel-7", Lifecycle: StreamEndOfLife},
		{Name: "rhel-6", Lifecycle: StreamEndOfLife},
	}, "rhel-9")
	assert.Equal(t, "rhel-9,rhel-10,rhel-8,rhel-7,rhel-6", status.StreamNames)
	assert.Equal(t, "rhel-8", status.DeprecatedStreamNames)
	assert.Equal(t, "rhel-7,rhel-6", status.EndOfLifeStreamNames)
	status.SetStreams(nil, "")
	assert.Equal(t, OSImageStreamStatus{}, status)
}

func TestAsked(t *testing.T) {
	t.Parallel()
	old := &MachineOSBuild{}
	old.Annotations = map[string]string{
		AnnotationBaseImage: "r.example.com/os@sha256:1", AnnotationExtensionsImage: "r.example.com/ext@sha256:2", AnnotationOSImageStream: "rhel-10",
		AnnotationBuildCause: "ImageMissing", AnnotationContentImage: "r.example.com/os:content-1", AnnotationRegistryAccess: "access",
		AnnotationBaseImagePullSecret: "pull", AnnotationRenderedImagePushSecret: "push", AnnotationImageDeletion: "Disabled",
		AnnotationBuildArchitectures: "AMD64,ARM64",
	}
	want := BuildDecision{
		Cause: BuildInputImageMissing, BaseImage: "r.example.com/os@sha256:1", ExtensionsImage: "r.example.com/ext@sha256:2", OSImageStream: "rhel-10",
		ContentImage: "r.example.com/os:content-1", RegistryAccess: "access", BaseImagePullSecret: "pull", RenderedImagePushSecret: "push",
		ImageDeletion: Disabled, Inputs: ImageInputs{Architectures: []Architecture{ArchitectureAMD64, ArchitectureARM64}},
	}
	assert.Equal(t, want, old.Asked(), "of an earlier version")
	now := old.DeepCopy()
	now.Spec.Decision = &BuildDecision{BuildKey: "key", Action: BuildActionAppend}
	assert.Equal(t, *now.Spec.Decision, now.Asked(), "the decision says everything")
}
