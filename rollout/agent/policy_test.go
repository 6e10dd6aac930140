package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/trust/sign/signtest"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// TestThePolicyOfTheControllerAdmits what it is about, on a host whose own policy accepts anything.
func TestThePolicyOfTheControllerAdmits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files, err := signaturepolicy.MakeFiles(
		signaturepolicy.Files{signaturepolicy.PolicyPath: []byte(`{"default":[{"type":"insecureAcceptAnything"}]}`)},
		[]signaturepolicy.Repository{{Name: "quay.io/os/image", Keys: [][]byte{signtest.NewPair().Public}}})
	require.NoError(t, err)
	w.put("etc/containers/policy.json", string(files[signaturepolicy.PolicyPath]))
	const digest = "@sha256:2222222222222222222222222222222222222222222222222222222222222222"
	require.NoError(t, w.agent.checkPolicy("quay.io/os/image"+digest))
	w.put("etc/containers/policy.json", `{"default":[{"type":"reject"}]}`)
	require.Equal(t, mcfgv1.ReasonWaitingForSignaturePolicy, fault.Reason(w.agent.checkPolicy("quay.io/os/image"+digest)))
}
