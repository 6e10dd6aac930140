package events

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events about MachineOSBuilds and MachineOSConfigs. The first five, RebuildRequested
// and ConfigReconcileFailed are also those of openshift/machine-config-operator.
const (
	// ReasonBuildStarted is that a build has begun.
	ReasonBuildStarted = "BuildStarted"
	// ReasonBuildCompleted is that the image is there.
	ReasonBuildCompleted = "BuildCompleted"
	// ReasonBuildFailed is that a build has failed for good.
	ReasonBuildFailed = "BuildFailed"
	// ReasonBuildInterrupted is that a build was ended from outside.
	ReasonBuildInterrupted = "BuildInterrupted"
	// ReasonBuildDeleted is that a build that no one needs any more is being removed.
	ReasonBuildDeleted = "BuildDeleted"
	// ReasonImageKept is that a build goes and its image stays, because something uses it.
	ReasonImageKept = "ImageKept"
	// ReasonImageNotDeleted is that a build goes and its image could not be removed from the
	// registry.
	ReasonImageNotDeleted = "ImageNotDeleted"
	// ReasonInputsChanged is that something which a build reads was there before it, or was
	// changed.
	ReasonInputsChanged = "InputsChanged"
	// ReasonImagesChecked is that registries were asked for images because someone asked for that.
	ReasonImagesChecked = "ImagesChecked"
	// ReasonRebuildRequested is that someone asked for a build, and it is made.
	ReasonRebuildRequested = "RebuildRequested"
	// ReasonContainerfileWarnings is that the linter found something in a Containerfile that is
	// built all the same.
	ReasonContainerfileWarnings = "ContainerfileWarnings"
	// ReasonImageSigned is that an image has been signed, for the first time or with another key.
	ReasonImageSigned = "ImageSigned"
	// ReasonImageNotSigned is that an image could not be signed.
	ReasonImageNotSigned = "ImageNotSigned"
	// ReasonImageAttested is that statements about an image lie in the registry, for the first time
	// or other ones.
	ReasonImageAttested = "ImageAttested"
	// ReasonImageNotAttested is that an image could not be attested.
	ReasonImageNotAttested = "ImageNotAttested"
	// ReasonSignaturePolicyFailed is that a pool's nodes can't be made to insist on signatures.
	ReasonSignaturePolicyFailed = "SignaturePolicyFailed"
	// ReasonVerificationStarted is that an administrator's verification of an image runs.
	ReasonVerificationStarted = "VerificationStarted"
	// ReasonImageVerified is that it passed.
	ReasonImageVerified = "ImageVerified"
	// ReasonImageVerificationFailed is that it did not, or can't be run.
	ReasonImageVerificationFailed = "ImageVerificationFailed"
	// ReasonPoolTagNotMoved is that an image is ready, and the pool's tag could not be moved to it.
	ReasonPoolTagNotMoved = "PoolTagNotMoved"
	// ReasonConfigReconcileFailed is that a MachineOSConfig needs a person.
	ReasonConfigReconcileFailed = "ConfigReconcileFailed"
	// ReasonConfigReconciled is that a MachineOSConfig that needed a person goes on.
	ReasonConfigReconciled = "ConfigReconciled"
)

// Actions of them.
const (
	actionBuild  = "Build"
	actionSign   = "Sign"
	actionVerify = "Verify"
)

// BuildStarted is that a build has begun, and what changed since the one before.
func BuildStarted(why string) Event {
	text := "The build has begun"
	if why != "" {
		text += ": " + why
	}
	return Event{corev1.EventTypeNormal, ReasonBuildStarted, actionBuild, text}
}

// Waiting is that something is waited for, with the reason and the message of the condition.
func Waiting(reason, message string) Event {
	return Event{corev1.EventTypeNormal, reason, actionBuild, message}
}

// BuildCompleted is that the image is there, with the reason and the message of the condition.
func BuildCompleted(image, message string) Event {
	return Event{corev1.EventTypeNormal, ReasonBuildCompleted, actionBuild, fmt.Sprintf("The image is %s: %s", image, message)}
}

// BuildFailed is that a build has failed for good, with the reason and the message of the
// condition.
func BuildFailed(reason, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonBuildFailed, actionBuild, reason + ": " + message}
}

// BuildInterrupted is that a build was ended from outside, with the message of the condition.
func BuildInterrupted(message string) Event {
	return Event{corev1.EventTypeNormal, ReasonBuildInterrupted, actionBuild, message}
}

// BuildDeleted is that a build is being removed, and why.
func BuildDeleted(build, why string) Event {
	return Event{corev1.EventTypeNormal, ReasonBuildDeleted, actionBuild, fmt.Sprintf("Build %s is removed: %s", build, why)}
}

// ImageKept is that the image of a build that goes stays in the registry.
func ImageKept(image string) Event {
	return Event{corev1.EventTypeNormal, ReasonImageKept, actionBuild, fmt.Sprintf("The image %s stays in the registry: it is in use", image)}
}

// ImageNotDeleted is that the image of a build that goes could not be removed; no one tries again.
func ImageNotDeleted(image, why string) Event {
	return Event{
		corev1.EventTypeWarning, ReasonImageNotDeleted, actionBuild,
		fmt.Sprintf("The image %s may still be in the registry, remove it there: %s", image, why),
	}
}

// PoolTagNotMoved is that the tag of a pool could not be moved to an image. It is tried again.
func PoolTagNotMoved(tag, image, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonPoolTagNotMoved, actionBuild, fmt.Sprintf(
		"The tag %q was not moved, and nodes can get the image %s without it: %s; it is tried again", tag, image, message)}
}

// InputsChanged is that an object which a build reads is not what the controller makes, and what is
// done about it.
func InputsChanged(message string) Event {
	return Event{corev1.EventTypeWarning, ReasonInputsChanged, actionBuild, message}
}

// ImagesChecked is that registries were asked again, and which base image the image stands on now.
func ImagesChecked(base string) Event {
	return Event{corev1.EventTypeNormal, ReasonImagesChecked, actionBuild, fmt.Sprintf("As asked for by annotation, the registries were asked again: the base image is %s", base)}
}

// RebuildRequested is that someone asked for a build, and it is made.
func RebuildRequested(build string) Event {
	return Event{corev1.EventTypeNormal, ReasonRebuildRequested, actionBuild, fmt.Sprintf("As asked for by annotation, the image is made again: build %s", build)}
}

// ContainerfileWarnings are what the linter says of Containerfiles that are built all the same.
func ContainerfileWarnings(warnings []string) Event {
	return Event{corev1.EventTypeWarning, ReasonContainerfileWarnings, actionBuild, strings.Join(warnings, "; ")}
}

// ImageSigned is that an image has been signed.
func ImageSigned(image, keyID string) Event {
	return Event{corev1.EventTypeNormal, ReasonImageSigned, actionSign, fmt.Sprintf("The image %s is signed with the key %s", image, keyID)}
}

// ImageNotSigned is that an image could not be signed, with the reason and the message of the
// condition. It is tried again.
func ImageNotSigned(reason, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonImageNotSigned, actionSign, reason + ": " + message}
}

// ImageAttested is that statements about an image lie in the registry, and which one could not be
// made.
func ImageAttested(image string, predicateTypes []string, missing string) Event {
	text := fmt.Sprintf("The image %s is attested: %s", image, strings.Join(predicateTypes, ", "))
	if missing != "" {
		text += "; " + missing
	}
	return Event{corev1.EventTypeNormal, ReasonImageAttested, actionSign, text}
}

// ImageNotAttested is that an image could not be attested, with the reason and the message of the
// condition. It is tried again.
func ImageNotAttested(reason, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonImageNotAttested, actionSign, reason + ": " + message}
}

// VerificationStarted is that a verification of an image runs, as a Job.
func VerificationStarted(image, kind, name string) Event {
	return Event{corev1.EventTypeNormal, ReasonVerificationStarted, actionVerify, fmt.Sprintf("The image %s is verified by %s %q", image, kind, name)}
}

// ImageVerified is that an image passed its verification.
func ImageVerified(image, kind, name string) Event {
	return Event{corev1.EventTypeNormal, ReasonImageVerified, actionVerify, fmt.Sprintf("The image %s passed its verification by %s %q", image, kind, name)}
}

// ImageVerificationFailed is that an image failed its verification, or that it can't be run, with
// the reason and the message of the condition.
func ImageVerificationFailed(image, reason, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonImageVerificationFailed, actionVerify, fmt.Sprintf("The image %s is not verified: %s: %s", image, reason, message)}
}

// SignaturePolicyFailed is that a pool's nodes can't be made to insist on signatures, and why.
func SignaturePolicyFailed(message string) Event {
	return Event{corev1.EventTypeWarning, ReasonSignaturePolicyFailed, actionSign, message}
}

// ConfigReconcileFailed is that a MachineOSConfig needs a person, with the reason and the message
// of the condition.
func ConfigReconcileFailed(reason, message string) Event {
	return Event{corev1.EventTypeWarning, ReasonConfigReconcileFailed, actionBuild, reason + ": " + message}
}

// ConfigReconciled is that a MachineOSConfig that needed a person goes on.
func ConfigReconciled() Event {
	return Event{corev1.EventTypeNormal, ReasonConfigReconciled, actionBuild, "The problem is solved"}
}
