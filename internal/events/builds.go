package events

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events about MachineOSBuilds and MachineOSConfigs. The first five, RebuildRequested
// and ConfigReconcileFailed are also those of openshift/machine-config-operator.
const (
	// ReasonBuildStarted means that a build has begun.
	ReasonBuildStarted = "BuildStarted"
	// ReasonBuildCompleted means that the image is there.
	ReasonBuildCompleted = "BuildCompleted"
	// ReasonBuildFailed means that a build has failed for good.
	ReasonBuildFailed = "BuildFailed"
	// ReasonBuildInterrupted means that a build was ended from outside.
	ReasonBuildInterrupted = "BuildInterrupted"
	// ReasonBuildDeleted means that a build that no one needs any more is being removed.
	ReasonBuildDeleted = "BuildDeleted"
	// ReasonImageKept means that a build goes and its image stays, because something uses it.
	ReasonImageKept = "ImageKept"
	// ReasonImageNotDeleted means that a build goes and its image could not be removed from the
	// registry.
	ReasonImageNotDeleted = "ImageNotDeleted"
	// ReasonImageRemovalFails means that a build stays, since its image can't be removed from the
	// registry yet.
	ReasonImageRemovalFails = "ImageRemovalFails"
	// ReasonInputsChanged means that something which a build reads was there before it, or was
	// changed.
	ReasonInputsChanged = "InputsChanged"
	// ReasonImagesChecked means that registries were asked for images because someone asked for
	// that.
	ReasonImagesChecked = "ImagesChecked"
	// ReasonRebuildRequested means that someone asked for a build, and it is made.
	ReasonRebuildRequested = "RebuildRequested"
	// ReasonContainerfileWarnings means that the linter found something in a Containerfile that is
	// built all the same.
	ReasonContainerfileWarnings = "ContainerfileWarnings"
	// ReasonImageSigned means that an image has been signed, for the first time or with another
	// key.
	ReasonImageSigned = "ImageSigned"
	// ReasonOlderImageAllowed means that nodes may get an image that is older than the pool's.
	ReasonOlderImageAllowed = "OlderImageAllowed"
	// ReasonImageNotSigned means that an image could not be signed.
	ReasonImageNotSigned = "ImageNotSigned"
	// ReasonImageAttested means that statements about an image lie in the registry, for the first
	// time or other ones.
	ReasonImageAttested = "ImageAttested"
	// ReasonImageNotAttested means that an image could not be attested.
	ReasonImageNotAttested = "ImageNotAttested"
	// ReasonSignaturePolicyFailed means that a pool's nodes can't be made to insist on signatures.
	ReasonSignaturePolicyFailed = "SignaturePolicyFailed"
	// ReasonVerificationStarted means that an administrator's verification of an image runs.
	ReasonVerificationStarted = "VerificationStarted"
	// ReasonImageVerified means that it passed.
	ReasonImageVerified = "ImageVerified"
	// ReasonImageVerificationFailed means that it did not, or can't be run.
	ReasonImageVerificationFailed = "ImageVerificationFailed"
	// ReasonPoolTagNotMoved means that an image is ready, and the pool's tag could not be moved to
	// it.
	ReasonPoolTagNotMoved = "PoolTagNotMoved"
	// ReasonConfigReconcileFailed means that a MachineOSConfig needs a person.
	ReasonConfigReconcileFailed = "ConfigReconcileFailed"
	// ReasonConfigReconciled means that a MachineOSConfig that needed a person goes on.
	ReasonConfigReconciled = "ConfigReconciled"
)

// Actions of them.
const (
	actionBuild  = "Build"
	actionSign   = "Sign"
	actionVerify = "Verify"
)

// BuildStarted means that a build has begun, and what changed since the one before.
func BuildStarted(why string) Event {
	text := "The build has begun"
	if why != "" {
		text += ": " + why
	}
	return Event{corev1.EventTypeNormal, ReasonBuildStarted, actionBuild, text}
}

// Waiting means that something is waited for, with the reason and the message of the condition.
func Waiting(reason, message string) Event {
	return Event{corev1.EventTypeNormal, reason, actionBuild, message}
}

// BuildCompleted means that the image is there, with the reason and the message of the condition.
func BuildCompleted(image, message string) Event {
	return Event{corev1.EventTypeNormal, ReasonBuildCompleted, actionBuild, fmt.Sprintf("The image is %s: %s", image, message)}
}

// BuildFailed means that a build has failed for good, with the reason and the message of the
// condition.
func BuildFailed(reason, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonBuildFailed, actionBuild, reason + ": " + message}
}

// BuildInterrupted means that a build was ended from outside, with the message of the condition.
func BuildInterrupted(message string) Event {
	return Event{corev1.EventTypeNormal, ReasonBuildInterrupted, actionBuild, message}
}

// BuildDeleted means that a build is being removed, and why.
func BuildDeleted(build, why string) Event {
	return Event{corev1.EventTypeNormal, ReasonBuildDeleted, actionBuild, fmt.Sprintf("Build %s is removed: %s", build, why)}
}

// ImageKept means that the image of a build that goes stays in the registry.
func ImageKept(image string) Event {
	return Event{corev1.EventTypeNormal, ReasonImageKept, actionBuild, fmt.Sprintf("The image %s stays in the registry: it is in use", image)}
}

// ImageNotDeleted means that the image of a build that goes could not be removed; no one tries
// again.
func ImageNotDeleted(image, why string) Event {
	return Event{
		corev1.EventTypeWarning, ReasonImageNotDeleted, actionBuild,
		fmt.Sprintf("The image %s may still be in the registry, remove it there: %s", image, why),
	}
}

// ImageRemovalFails means that the image of a build that goes could not be removed, and is tried
// again.
func ImageRemovalFails(image, why string, until time.Time) Event {
	return Event{corev1.EventTypeWarning, ReasonImageRemovalFails, actionBuild, fmt.Sprintf(
		"The image %s can't be removed from the registry: %s; it is tried again until %s", image, why, until.UTC().Format("15:04:05 MST"))}
}

// PoolTagNotMoved means that the tag of a pool could not be moved to an image. It is tried again.
func PoolTagNotMoved(tag, image, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonPoolTagNotMoved, actionBuild, fmt.Sprintf(
		"The tag %q could not be moved to the image %s: %s; it is tried again, and nodes do not need the tag", tag, image, message)}
}

// InputsChanged means that an object which a build reads is not what the controller makes, and what
// is done about it.
func InputsChanged(message string) Event {
	return Event{corev1.EventTypeWarning, ReasonInputsChanged, actionBuild, message}
}

// ImagesChecked means that registries were asked again, and which base image the image stands on
// now.
func ImagesChecked(base string) Event {
	return Event{corev1.EventTypeNormal, ReasonImagesChecked, actionBuild, fmt.Sprintf("The registries were asked again, as the annotation requests: the base image is %s", base)}
}

// RebuildRequested means that someone asked for a build, and it is made.
func RebuildRequested(build string) Event {
	return Event{corev1.EventTypeNormal, ReasonRebuildRequested, actionBuild, fmt.Sprintf("The image is built again, as the annotation requests: build %s", build)}
}

// ContainerfileWarnings are what the linter says of Containerfiles that are built all the same.
func ContainerfileWarnings(warnings []string) Event {
	return Event{corev1.EventTypeWarning, ReasonContainerfileWarnings, actionBuild, strings.Join(warnings, "; ")}
}

// ImageSigned means that an image has been signed.
func ImageSigned(image, keyID string) Event {
	return Event{corev1.EventTypeNormal, ReasonImageSigned, actionSign, fmt.Sprintf("The image %s is signed with the key %s", image, keyID)}
}

// ImageNotSigned means that an image could not be signed, with the reason and the message of the
// condition. It is tried again.
func ImageNotSigned(reason, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonImageNotSigned, actionSign, reason + ": " + message}
}

// OlderImageAllowed means that an annotation allows an image that is older than the one that the
// pool has.
func OlderImageAllowed(image, pool string) Event {
	return Event{corev1.EventTypeWarning, ReasonOlderImageAllowed, actionSign, fmt.Sprintf("The image %s is allowed by its annotation, though pool %s has a newer one", image, pool)}
}

// ImageAttested means that statements about an image lie in the registry, and which one could not
// be made.
func ImageAttested(image string, predicateTypes []string, missing string) Event {
	text := fmt.Sprintf("The image %s is attested: %s", image, strings.Join(predicateTypes, ", "))
	if missing != "" {
		text += "; " + missing
	}
	return Event{corev1.EventTypeNormal, ReasonImageAttested, actionSign, text}
}

// ImageNotAttested means that an image could not be attested, with the reason and the message of
// the condition. It is tried again.
func ImageNotAttested(reason, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonImageNotAttested, actionSign, reason + ": " + message}
}

// VerificationStarted means that a verification of an image runs, as a Job.
func VerificationStarted(image, kind, name string) Event {
	return Event{corev1.EventTypeNormal, ReasonVerificationStarted, actionVerify, fmt.Sprintf("The image %s is verified by %s %q", image, kind, name)}
}

// ImageVerified means that an image passed its verification.
func ImageVerified(image, kind, name string) Event {
	return Event{corev1.EventTypeNormal, ReasonImageVerified, actionVerify, fmt.Sprintf("The image %s passed its verification by %s %q", image, kind, name)}
}

// ImageVerificationFailed means that an image failed its verification, or that it can't be run,
// with the reason and the message of the condition.
func ImageVerificationFailed(image, reason, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonImageVerificationFailed, actionVerify, fmt.Sprintf("The image %s is not verified: %s: %s", image, reason, message)}
}

// SignaturePolicyFailed means that a pool's nodes can't be made to insist on signatures, and why.
func SignaturePolicyFailed(message string) Event {
	return Event{corev1.EventTypeWarning, ReasonSignaturePolicyFailed, actionSign, message}
}

// ConfigReconcileFailed means that a MachineOSConfig needs a person, with the reason and the
// message of the condition.
func ConfigReconcileFailed(reason, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonConfigReconcileFailed, actionBuild, reason + ": " + message}
}

// ConfigReconciled means that a MachineOSConfig that needed a person goes on.
func ConfigReconciled() Event {
	return Event{corev1.EventTypeNormal, ReasonConfigReconciled, actionBuild, "The problem is solved"}
}
