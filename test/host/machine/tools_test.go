package machine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseLDD(t *testing.T) {
	t.Parallel()
	libraries, loader := parseLDD(`	linux-vdso.so.1 (0x00007ffc3a5f2000)
	libostree-1.so.1 => /lib/x86_64-linux-gnu/libostree-1.so.1 (0x00007f9a4c200000)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f9a4be00000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f9a4c4f1000)
`)
	require.Equal(t, []string{"/lib/x86_64-linux-gnu/libostree-1.so.1", "/lib/x86_64-linux-gnu/libc.so.6"}, libraries)
	require.Equal(t, "/lib64/ld-linux-x86-64.so.2", loader)
	_, loader = parseLDD("\tstatically linked\n")
	require.Empty(t, loader)
}
