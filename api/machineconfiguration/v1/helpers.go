package v1

import (
	"strings"
	"time"
)

// SetStreams puts the available streams and their default into the status, with the names that
// columns show.
func (s *OSImageStreamStatus) SetStreams(streams []OSImageStreamSet, defaultStream string) {
	names := map[StreamLifecycle][]string{}
	var all []string
	for _, stream := range streams {
		all = append(all, stream.Name)
		names[stream.Lifecycle] = append(names[stream.Lifecycle], stream.Name)
	}
	s.AvailableStreams, s.DefaultStream = streams, defaultStream
	s.StreamNames = strings.Join(all, ",")
	s.DeprecatedStreamNames = strings.Join(names[StreamDeprecated], ",")
	s.EndOfLifeStreamNames = strings.Join(names[StreamEndOfLife], ",")
}

// IsPushOnly reports whether the images of the MachineOSConfig are built and not rolled out.
func (c *MachineOSConfig) IsPushOnly() bool {
	_, isHeld := c.Annotations[AnnotationNoRollout]
	return isHeld || c.Spec.PostBuildStrategy == ImagePushOnly
}

// RebootPatience is how long a node may take from its reboot until it reports, by rebootTimeout of
// the pool's spec.rollout.
func (s *MachineConfigPoolSpec) RebootPatience() time.Duration {
	const otherwise = 30 * time.Minute
	if s.Rollout == nil {
		return otherwise
	}
	if d, err := time.ParseDuration(s.Rollout.RebootTimeout); err == nil {
		return d
	}
	return otherwise
}

// RollsBack reports whether nodes of the pool that fail return to what ran before, by
// automaticRollback of its spec.rollout.
func (s *MachineConfigPoolSpec) RollsBack() bool {
	return s.Rollout == nil || s.Rollout.AutomaticRollback != Disabled
}

// SoftReboots reports whether nodes of the pool may restart their user space instead of their
// kernel, by softReboot of its spec.rollout.
func (s *MachineConfigPoolSpec) SoftReboots() bool {
	return s.Rollout != nil && s.Rollout.SoftReboot == Enabled
}

// Asked is what a build was asked to make. Of a build that an earlier version of Layerwright
// requested, its annotations say that; keys and inputs are in AnnotationBuildInputs then.
func (b *MachineOSBuild) Asked() BuildDecision {
	if b.Spec.Decision != nil {
		return *b.Spec.Decision
	}
	old := b.Annotations
	d := BuildDecision{
		Cause: BuildInput(old[AnnotationBuildCause]), BaseImage: ImageDigestFormat(old[AnnotationBaseImage]),
		OSImageStream: old[AnnotationOSImageStream], ExtensionsImage: ImageDigestFormat(old[AnnotationExtensionsImage]),
		ContentImage: old[AnnotationContentImage], RegistryAccess: old[AnnotationRegistryAccess],
		BaseImagePullSecret: old[AnnotationBaseImagePullSecret], RenderedImagePushSecret: old[AnnotationRenderedImagePushSecret],
		ImageDeletion: Switch(old[AnnotationImageDeletion]),
	}
	for text := range strings.SplitSeq(old[AnnotationBuildArchitectures], ",") {
		if text != "" {
			d.Inputs.Architectures = append(d.Inputs.Architectures, Architecture(text))
		}
	}
	return d
}
