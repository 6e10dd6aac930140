package cosign

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDocumented(t *testing.T) {
	t.Parallel()
	const text = "```console\n$ cosign verify --key k --flag x@y\n$ cosign verify --certificate-identity i x@y\n$ cosign verify-attestation --type a --key k x@y | jq\n$ cosign verify-attestation --type b --key k x@y\n$ cosign public-key --key k > cosign.pub\n```\n"
	tests := map[string]struct {
		begin []string
		with  string
		want  []string
	}{
		"a command, and not the one without a key": {[]string{"verify"}, "--key", []string{"verify", "--key", "k", "--flag", "image"}},
		"one of two, without what follows it":      {[]string{"verify-attestation", "--type", "a"}, "--key", []string{"verify-attestation", "--type", "a", "--key", "k", "image"}},
		"one about a key, without where it goes":   {[]string{"public-key"}, "--key", []string{"public-key", "--key", "image"}},
		"the one without a key":                    {[]string{"verify"}, subjectFlag, []string{"verify", subjectFlag, "i", "image"}},
		"two":                                      {[]string{"verify-attestation"}, "--key", nil},
		"none":                                     {[]string{"sign"}, "--key", nil},
		"the beginning of an argument's no one":    {[]string{"ver"}, "--key", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := documented(text, "image", tt.begin, tt.with)
			if tt.want == nil {
				require.ErrorIs(t, err, errUndocumented)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}
