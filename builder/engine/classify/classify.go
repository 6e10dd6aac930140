//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package classify

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/docker/distribution/registry/api/errcode"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/report"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/registry/failure"
)

// statusInText is how containers/image tells the status of an answer that is neither JSON nor
// empty, such as a proxy's page.
var statusInText = regexp.MustCompile(`StatusCode: (\d{3})`)

// kindOf is what a registry said in an error of containers/image.
func kindOf(err error) failure.Kind {
	err = unwrapped(err)
	var status docker.UnexpectedHTTPStatusError
	var code errcode.ErrorCoder // an error with a message of the registry's, or the bare code
	var unauthorized docker.ErrUnauthorizedForCredentials
	answer := &transport.Error{}
	switch {
	case errors.As(err, &unauthorized):
		return failure.Denied
	case IsImmutable(err):
		return failure.Immutable
	case errors.As(err, &code):
		answer.Errors = []transport.Diagnostic{{Code: transport.ErrorCode(code.ErrorCode().Descriptor().Value)}}
	case errors.As(err, &status):
		answer.StatusCode = status.StatusCode
	default:
		if found := statusInText.FindStringSubmatch(err.Error()); found != nil {
			answer.StatusCode, _ = strconv.Atoi(found[1])
		}
	}
	return failure.KindOfAnswer(answer)
}

// unwrapped is what a registry said of a manifest, which containers/image hides from errors.As.
func unwrapped(err error) error {
	var rejected types.ManifestTypeRejectedError
	if errors.As(err, &rejected) {
		return rejected.Err
	}
	return err
}

// IsImmutable reports whether a registry refuses to move a tag. No code of the specification says
// so; all say it in words.
func IsImmutable(err error) bool {
	var said errcode.Error
	return errors.As(unwrapped(err), &said) && said.Code != errcode.ErrorCodeDenied && said.Code != errcode.ErrorCodeUnauthorized &&
		strings.Contains(strings.ToLower(said.Message), "immutable")
}

// Targets are the names under which an image may be pushed: each after the first is for where
// IsImmutable says that the one before can't be moved.
func Targets(target string) []string {
	targets := make([]string, names.MaxTags)
	for i := range targets {
		targets[i] = names.NextTag(target, i+1)
	}
	return targets
}

// Texts of containers/image for which it has no type.
const (
	textBlocked        = " is blocked in "
	textNoArchitecture = "no image found in "
	textDiskFull       = "no space left on device"
)

// Pull says what a failed pull means. What is no registry's fault is told apart: a full disk,
// the end of the step.
func Pull(what string, err error) error {
	var refusedByPolicy signature.PolicyRequirementError
	admin := func(problem, fix string) error {
		return report.NewAdmin(mcfgv1.ReasonImageNotFound, fmt.Errorf("%s: %s (%w); %s", what, problem, err, fix))
	}
	switch {
	case isEnd(err):
		return err
	case IsDiskFull(err):
		return DiskFull(what, err)
	case errors.As(err, &refusedByPolicy):
		return admin("policy.json of the pool refuses it", "sign it, or change the policy")
	case strings.Contains(err.Error(), textBlocked):
		return admin("registries.conf of the pool blocks its registry", "use another image, or unblock the registry")
	case strings.Contains(err.Error(), textNoArchitecture):
		return admin("it has no image for this architecture", "use another image, or build for another architecture")
	}
	switch kindOf(err) {
	case failure.NotFound:
		return admin("it does not exist", "check the name, or push it again")
	case failure.Denied:
		return admin("the registry denies read access", "check the pull secret, which spec.baseImagePullSecret names")
	case failure.Unsupported, failure.TooLarge, failure.Immutable:
		return admin("the registry can't serve it", "check its name, and that it is an image")
	case failure.Other, failure.Lost, failure.ReadOnly: // which may pass
	}
	return report.NewInfrastructure(fmt.Errorf("%s: %w", what, err))
}

// Push says what a failed push means.
func Push(what string, err error) error {
	admin := func(problem, fix string) error {
		return report.NewAdmin(mcfgv1.ReasonPushDenied, fmt.Errorf("%s: %s (%w); %s", what, problem, err, fix))
	}
	var known *report.Error // such as of the base's registry, or of the exported image
	switch {
	case isEnd(err):
		return err
	case errors.As(err, &known):
		return fmt.Errorf("%s: %w", what, err)
	case IsDiskFull(err):
		return DiskFull(what, err)
	case strings.Contains(err.Error(), textBlocked):
		return admin("registries.conf of the pool blocks the registry", "push to another one, or unblock it")
	}
	switch kindOf(err) {
	case failure.NotFound:
		return admin("the repository does not exist", "create it, since this registry does not do so by itself")
	case failure.Denied:
		return admin("the registry denies write access", "check the push secret")
	case failure.Unsupported, failure.TooLarge:
		return admin("the registry does not take it", "check the limits of the registry, and of the proxy before it")
	case failure.Immutable:
		return admin("the tag stands for another image, and the registry's tags are immutable", "except it from that rule of the registry")
	case failure.Other, failure.Lost, failure.ReadOnly: // which may pass
	}
	return report.NewInfrastructure(fmt.Errorf("%s: %w", what, err))
}

func isEnd(err error) bool { return errors.Is(err, context.Canceled) }

// IsDiskFull looks at the text too, because layers are unpacked by a process of their own.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), textDiskFull)
}

// DiskFull is the failure of what a full volume ended.
func DiskFull(what string, err error) error {
	return report.NewInfrastructure(fmt.Errorf("%s: the volume of the build is full (%w): %s", what, err, backend.MoreDisk))
}

// ErrNoProgress is a registry that keeps a connection open and nothing else.
var ErrNoProgress = errors.New("the registry sent and took nothing for too long")
