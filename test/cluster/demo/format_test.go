package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 36371: "36.4 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 999_999: "1.0 MB",
		590_612_345: "590.6 MB", 1_200_000_000: "1.2 GB", 5_000_000_000_000_000: "5000.0 TB",
	} {
		require.Equal(t, want, size(bytes))
	}
}

func TestTook(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		142_400 * time.Microsecond: "142 ms", 999 * time.Millisecond: "999 ms", time.Second: "1.0 s", 1260 * time.Millisecond: "1.3 s", 75 * time.Second: "75.0 s",
	} {
		require.Equal(t, want, took(d))
	}
}

func TestMoved(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ message, want string }{
		"what a build says is made readable, beside the base image": {
			"the configuration was appended in 109ms, with 35997 bytes sent and 16313 received",
			"36.0 kB sent and 16.3 kB received in 109ms; the base image has 590.6 MB",
		},
		"what a build in a pod says too": {
			"the content was built, and the configuration was appended in 109ms, with 35997 bytes sent and 16313 received",
			"36.0 kB sent and 16.3 kB received in 109ms; the base image has 590.6 MB",
		},
		"another message stays": {"the registry had the image already", "the registry had the image already"},
		"a number that is none": {
			"the configuration was appended in 1s, with 99999999999999999999 bytes sent and 1 received",
			"the configuration was appended in 1s, with 99999999999999999999 bytes sent and 1 received",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, moved(tc.message, 590_600_000))
		})
	}
}

func TestHome(t *testing.T) {
	t.Parallel()
	require.Equal(t, "~/a/b", home("/home/x/a/b", "/home/x"))
	require.Equal(t, "/home/xy/a", home("/home/xy/a", "/home/x"))
	require.Equal(t, "/a", home("/a", ""))
}

func TestIndent(t *testing.T) {
	t.Parallel()
	require.Equal(t, "  a\n    b", indent("a\n  b\n"))
}
