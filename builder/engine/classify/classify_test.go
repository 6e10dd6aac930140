//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package classify

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/docker/distribution/registry/api/errcode"
	v2 "github.com/docker/distribution/registry/api/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/signature"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/report"
	"github.com/layerwright/layerwright/internal/fault"
)

func TestClassifyRegistryErrors(t *testing.T) {
	t.Parallel()
	again := backend.StepFailure{Class: fault.Transient, Reason: mcfgv1.ReasonRetryingBuild}
	noImage := backend.StepFailure{Class: fault.Terminal, Reason: mcfgv1.ReasonImageNotFound}
	noPush := backend.StepFailure{Class: fault.Terminal, Reason: mcfgv1.ReasonPushDenied}
	tests := map[string]struct {
		err        error
		pull, push backend.StepFailure
	}{
		"an unknown manifest":   {v2.ErrorCodeManifestUnknown.WithMessage("unknown"), noImage, noPush},
		"a bare code":           {errcode.ErrorCodeUnauthorized, noImage, noPush},
		"a bad password":        {docker.ErrUnauthorizedForCredentials{Err: errors.New("no")}, noImage, noPush},
		"denied":                {errcode.ErrorCodeDenied.WithMessage("no"), noImage, noPush},
		"an invalid manifest":   {v2.ErrorCodeManifestInvalid.WithMessage("no"), noImage, noPush},
		"403 of a proxy":        {errors.New(`StatusCode: 403, "<html>"`), noImage, noPush},
		"404":                   {docker.UnexpectedHTTPStatusError{StatusCode: http.StatusNotFound}, noImage, noPush},
		"413":                   {docker.UnexpectedHTTPStatusError{StatusCode: http.StatusRequestEntityTooLarge}, noImage, noPush},
		"500":                   {docker.UnexpectedHTTPStatusError{StatusCode: http.StatusInternalServerError}, again, again},
		"502 of a proxy":        {errors.New(`StatusCode: 502, "<html>"`), again, again},
		"429":                   {docker.ErrTooManyRequests, again, again},
		"429 with words":        {errcode.ErrorCodeTooManyRequests.WithMessage("slow"), again, again},
		"a lost connection":     {syscall.ECONNRESET, again, again},
		"a full disk":           {syscall.ENOSPC, again, again},
		"a full disk elsewhere": {errors.New("processing tar file(write /usr: no space left on device): exit status 1"), again, again},
		"no signature":          {signature.PolicyRequirementError("no"), noImage, again},
		"no architecture":       {errors.New(`no image found in image index for architecture "arm64"`), noImage, again},
		"no progress":           {ErrNoProgress, again, again},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, direction := range []struct {
				classify func(string, error) error
				want     backend.StepFailure
			}{{Pull, tt.pull}, {Push, tt.push}} {
				err := direction.classify("moving x", fmt.Errorf("around: %w", tt.err))
				require.ErrorIs(t, err, tt.err)
				got := report.FailureOf(err)
				assert.Contains(t, got.Message, "moving x: ")
				got.Message = ""
				assert.Equal(t, direction.want, *got)
			}
		})
	}
}
