package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNoCommandWaitsForeverForAnAnswer(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}],
		"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`), 0o600))
	for _, test := range []struct {
		args []string
		want time.Duration
	}{{nil, answerPatience}, {[]string{"--request-timeout", "5s"}, 5 * time.Second}} {
		cmd := &cobra.Command{}
		flags := newClusterFlags(cmd)
		require.NoError(t, cmd.ParseFlags(append(test.args, "--kubeconfig", kubeconfig)))
		config, err := flags.impatient()
		require.NoError(t, err)
		assert.Equal(t, test.want, config.Timeout)
		config, err = flags.config()
		require.NoError(t, err)
		assert.Less(t, config.Timeout, answerPatience, "what follows a log takes as long as that does")
	}
}
