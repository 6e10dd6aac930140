package demo

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnswersOfCosign(t *testing.T) {
	t.Parallel()
	statement := base64.StdEncoding.EncodeToString([]byte(`{"predicate":{"runDetails":{"builder":{"id":"us"}}}}`))
	a := answer{
		out: `{"payloadType":"application/vnd.in-toto+json","payload":"` + statement + `"}` + "\n",
		err: "WARNING: no matter\n\nVerification for x --\nThe following checks were performed:\n  - The claims\n  - The signature\n",
	}
	require.Equal(t, []string{"The claims", "The signature"}, a.checks())
	made, err := a.provenance()
	require.NoError(t, err)
	require.Equal(t, "us", made.RunDetails.Builder.ID)
	for _, broken := range []string{"", "no JSON", `{"payload":"AAAA"}`} {
		_, err := answer{out: broken}.provenance()
		require.Error(t, err, broken)
	}
	require.Equal(t, "Error: no", firstLine("Error: no\nmain.go: no"))
}
