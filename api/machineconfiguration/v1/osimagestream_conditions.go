package v1

// Condition types of an OSImageStream, beside Ready, Reconciling and Stalled. Each says what is
// wrong with what its sources give, and is there only while it is True; meanwhile streams that were
// available stay as they were. The message names source and image.
const (
	// StreamReleaseImageUnreadable means that the release image, or the list of images in it,
	// cannot be read. Reasons: SourceFailed, Retrying.
	StreamReleaseImageUnreadable = "ReleaseImageUnreadable"
	// StreamConfigMapInvalid means that a ConfigMap with streams, with what is known of them or
	// with mirrors makes no sense. Reasons: Invalid, OtherRelease.
	StreamConfigMapInvalid = "ConfigMapInvalid"
	// StreamImagesUnreadable means that images of streams cannot be read from their registry.
	// Reasons: SourceFailed, Retrying.
	StreamImagesUnreadable = "ImagesUnreadable"
	// StreamImageLabelsMissing means that images have no label that says which stream they are of,
	// or what they are to it; they are not used. Reason: LabelMissing.
	StreamImageLabelsMissing = "ImageLabelsMissing"
	// StreamImageLabelsContradictory means that labels say another thing than the source, or than
	// each other, such as an OS image that is labelled as extensions; such images are not used.
	// Reason: LabelsContradictory.
	StreamImageLabelsContradictory = "ImageLabelsContradictory"
	// StreamDuplicates means that one source has several images for the same part of a stream.
	// Reason: DuplicateImages.
	StreamDuplicates = "DuplicateStreams"
	// StreamTooMany means that there are more streams than an OSImageStream lists. Reason:
	// TooManyStreams.
	StreamTooMany = "TooManyStreams"
	// StreamNamesInvalid means that streams have names that pools cannot name them by. Reason:
	// InvalidName.
	StreamNamesInvalid = "InvalidStreamNames"
	// StreamDigestsInvalid means that a source names images by what is neither a digest nor a tag
	// that may be used there. Reason: InvalidImageReference.
	StreamDigestsInvalid = "InvalidDigests"
	// StreamIncomplete means that streams lack one of their images; status.unusableStreams lists
	// them. Reasons: OSImageMissing, ExtensionsImageMissing.
	StreamIncomplete = "IncompleteStreams"
	// StreamSourcesConflict means that two sources have different images for a stream, and which of
	// them counts. Reason: Overridden.
	StreamSourcesConflict = "ConflictingSources"
	// StreamDefaultNotAvailable means that there is no stream to be the default, or not the one
	// that is asked for. Reason: DefaultStreamNotAvailable.
	StreamDefaultNotAvailable = "DefaultStreamNotAvailable"
)

// Reasons of these conditions, and of status.unusableStreams.
const (
	// ReasonLabelMissing means that an image lacks a label.
	ReasonLabelMissing = "LabelMissing"
	// ReasonLabelsContradictory means that an image's labels contradict each other, or the source.
	ReasonLabelsContradictory = "LabelsContradictory"
	// ReasonDuplicateImages means that a source has several images for the same part of a stream.
	ReasonDuplicateImages = "DuplicateImages"
	// ReasonTooManyStreams means that the stream is one too many.
	ReasonTooManyStreams = "TooManyStreams"
	// ReasonInvalidName means that the stream's name is no lowercase RFC 1123 subdomain.
	ReasonInvalidName = "InvalidName"
	// ReasonInvalidImageReference means that an image is named by something that is no digest, and
	// no tag where one may be.
	ReasonInvalidImageReference = "InvalidImageReference"
	// ReasonOSImageMissing means that a stream has an extensions image and no OS image.
	ReasonOSImageMissing = "OSImageMissing"
	// ReasonExtensionsImageMissing means that a stream has an OS image and no extensions image,
	// from a source that has both.
	ReasonExtensionsImageMissing = "ExtensionsImageMissing"
	// ReasonImageUnreadable means that an image of the stream could not be read.
	ReasonImageUnreadable = "ImageUnreadable"
	// ReasonOverridden means that a source of higher precedence has other images.
	ReasonOverridden = "Overridden"
	// ReasonOtherRelease means that a ConfigMap belongs to another release than the controller.
	ReasonOtherRelease = "OtherRelease"
	// ReasonWaitingForRelease means that the cluster is to have another release than that of the
	// controller, whose successor looks for streams.
	ReasonWaitingForRelease = "WaitingForRelease"
)
