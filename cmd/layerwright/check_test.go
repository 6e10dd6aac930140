package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/check"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

func TestReportFindings(t *testing.T) {
	t.Parallel()
	good := check.Finding{Check: "clocks", State: check.OK, What: "clocks agree"}
	bad := check.Finding{Check: "namespace", State: check.Mend, What: "it is strict", Why: "builds mount", Run: "kubectl label"}
	var text, encoded bytes.Buffer
	var toMend *toMendError
	require.ErrorAs(t, reportFindings(&text, []check.Finding{good, bad}, "text"), &toMend)
	assert.Equal(t, `ok       clocks               clocks agree
mend     namespace            it is strict
           why: builds mount
           run: kubectl label
`, text.String())
	require.ErrorAs(t, reportFindings(&encoded, []check.Finding{bad}, "json"), &toMend)
	assert.JSONEq(t, `[{"check":"namespace","state":"mend","what":"it is strict","why":"builds mount","run":"kubectl label"}]`, encoded.String())
	encoded.Reset()
	require.NoError(t, reportFindings(&encoded, []check.Finding{{Check: "pods", State: check.OK, What: "a\x1b[2Jb\u202ec\u009bd\ne"}}, "text"))
	assert.Equal(t, "ok       pods                 a [2Jb c d e\n", encoded.String(), "nothing of it moves a cursor, or turns text round")
	require.NoError(t, reportFindings(&text, []check.Finding{good, {State: check.Unknown}, {State: check.Advice}}, "text"))
}

// TestCheckExitCodes runs the command on a cluster with something to mend, and without one.
func TestCheckExitCodes(t *testing.T) {
	t.Parallel()
	kubeconfig, namespace := clustertest.Kubeconfig(t), clustertest.Namespace(t)
	_, err := kubernetes.NewForConfigOrDie(clustertest.ControlPlane(t)).CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		"something to mend": {[]string{"check", "--kubeconfig", kubeconfig, "--namespace", namespace}, exitHeld, "enforces the Pod Security level restricted", "to mend"},
		"no cluster":        {[]string{"check", "--kubeconfig", "/nonexistent"}, exitFailure, "", "layerwright: kubeconfig: "},
		"another format":    {[]string{"check", "-o", "xml"}, exitUsage, "", "must be text or json"},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, test.code, execute(t.Context(), test.args, &stdout, &stderr), "%s: %s%s", name, &stdout, &stderr)
		assert.Contains(t, stdout.String(), test.stdout, name)
		assert.Contains(t, stderr.String(), test.stderr, name)
	}
}
