package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/test/cluster/stack"
)

func TestPlain(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"\x1b[K[\x1b[0;32m  OK  \x1b[0m] Started \x1b[0;1;39mkubelet.service\x1b[0m - Kubernetes Kubelet.\r\n": "[  OK  ] Started kubelet.service - Kubernetes Kubelet.",
		"\x1bM\r\x1b[K[*     ] A start job is running\r\n":                                                     "[*     ] A start job is running",
		"\r\n": "", "": "",
	} {
		require.Equal(t, want, plain(line))
	}
}

func TestFollowShowsWholeLines(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "console")
	w, err := os.Create(file)
	require.NoError(t, err)
	_, err = w.WriteString("one\r\n\r\ntw")
	require.NoError(t, err)
	r, err := os.Open(file)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var shown []string
	require.NoError(t, follow(ctx, r, func(line string) {
		if shown = append(shown, line); len(shown) == 1 {
			_, err := w.WriteString("o\r\n") // while it follows
			require.NoError(t, err)
			return
		}
		cancel()
	}))
	require.Equal(t, []string{"one", "two"}, shown)
	require.NoError(t, errors.Join(r.Close(), w.Close()))
}

func TestMeanwhile(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	fail := func(context.Context) error { return failed }
	done := func(context.Context) error { return nil }
	require.NoError(t, meanwhile(t.Context(), wait, done), "what is shown ends")
	require.ErrorIs(t, meanwhile(t.Context(), wait, fail), failed)
	require.ErrorIs(t, meanwhile(t.Context(), fail, wait), failed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, meanwhile(ctx, wait, wait), context.Canceled)
}

func TestOnlyNodesWithTheSameImageTakePart(t *testing.T) {
	t.Parallel()
	process := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	guest := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "guest1", Labels: map[string]string{stack.GuestLabel: ""}}}
	for name, want := range map[string][]bool{"": {true, false}, "guest1": {false, true}} {
		s := &story{Options: Options{Guest: name}}
		require.Equal(t, want, []bool{s.takesPart(process), s.takesPart(guest)}, name)
	}
}
