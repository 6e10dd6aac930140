package failure

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// TestMeaningOfAnswers has what registries say, and the class that it gets for a read and a write.
func TestMeaningOfAnswers(t *testing.T) {
	t.Parallel()
	type meaning struct {
		kind   Kind
		class  fault.Class
		reason string
	}
	passes := meaning{Other, fault.Transient, ""}
	for name, tt := range map[string]struct {
		status      int
		code        transport.ErrorCode
		read, write meaning
	}{
		"not found": {
			http.StatusNotFound, "",
			meaning{NotFound, fault.Terminal, mcfgv1.ReasonImageNotFound},
			meaning{NotFound, fault.Terminal, mcfgv1.ReasonPushDenied},
		},
		"a part is missing that was there": {
			http.StatusNotFound, transport.BlobUnknownErrorCode,
			meaning{NotFound, fault.Terminal, mcfgv1.ReasonImageNotFound},
			meaning{Lost, fault.Transient, ""},
		},
		"denied": {
			http.StatusForbidden, "",
			meaning{Denied, fault.Terminal, mcfgv1.ReasonImageNotFound},
			meaning{Denied, fault.Terminal, mcfgv1.ReasonPushDenied},
		},
		"an upload is lost": {
			http.StatusBadRequest, transport.DigestInvalidErrorCode, meaning{Lost, fault.Transient, ""}, meaning{Lost, fault.Transient, ""},
		},
		"an immutable tag": {
			http.StatusConflict, "TAG_IMMUTABLE", meaning{Immutable, fault.Transient, ""}, meaning{Immutable, fault.Terminal, mcfgv1.ReasonPushDenied},
		},
		"no such manifests": {
			http.StatusUnsupportedMediaType, transport.ManifestInvalidErrorCode,
			meaning{Unsupported, fault.Terminal, mcfgv1.ReasonInvalid},
			meaning{Unsupported, fault.Terminal, mcfgv1.ReasonInvalid},
		},
		"no uploads": {
			http.StatusMethodNotAllowed, "", meaning{ReadOnly, fault.Terminal, mcfgv1.ReasonInvalid}, meaning{ReadOnly, fault.Waiting, mcfgv1.ReasonWaiting},
		},
		"no uploads, in words": {
			http.StatusMethodNotAllowed, transport.UnsupportedErrorCode,
			meaning{Unsupported, fault.Terminal, mcfgv1.ReasonInvalid},
			meaning{ReadOnly, fault.Waiting, mcfgv1.ReasonWaiting},
		},
		"too large": {
			http.StatusRequestEntityTooLarge, "", meaning{TooLarge, fault.Transient, ""}, meaning{TooLarge, fault.Terminal, mcfgv1.ReasonPushDenied},
		},
		"too many requests":               {http.StatusTooManyRequests, "", passes, passes},
		"a failure, whatever its text is": {http.StatusInternalServerError, transport.DeniedErrorCode, passes, passes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := &transport.Error{StatusCode: tt.status}
			if tt.code != "" {
				answer.Errors = []transport.Diagnostic{{Code: tt.code}}
			}
			for writes, want := range map[bool]meaning{false: tt.read, true: tt.write} {
				err := Call{Doing: "moving image", Subject: "x", Writes: writes}.Fail(answer)
				var known *Error
				require.ErrorAs(t, err, &known)
				require.Equal(t, want, meaning{known.Kind, fault.ClassOf(err), fault.Reason(err)})
			}
		})
	}
}

func TestRefusalIsOfWhatWasRead(t *testing.T) {
	t.Parallel()
	for kind, reason := range map[Kind]string{NotFound: mcfgv1.ReasonImageNotFound, Unsupported: mcfgv1.ReasonInvalid} {
		err := Call{Doing: "pushing image", Subject: "x", Writes: true}.Refuse(kind, "it is a lamp")
		require.EqualError(t, err, `pushing image "x": it is a lamp`)
		require.True(t, fault.IsTerminal(err))
		require.Equal(t, reason, fault.Reason(err))
		require.Equal(t, kind == NotFound, IsNotFound(errors.Join(err)))
	}
}
