package nodestate

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs"
)

// program answers commands; one that it has no answer for fails.
type program map[string]string

func (p program) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	answer, known := p[strings.Join(append([]string{name}, args...), " ")]
	if !known {
		return nil, errors.New("no such file")
	}
	return []byte(answer), nil
}

func TestLabelOf(t *testing.T) {
	t.Parallel()
	const keys = "system_u:object_r:ssh_home_t:s0"
	run := program{
		"matchpathcon -n -m dir /a": keys + "\n", "matchpathcon -n -m file /b": "<<none>>\n", "matchpathcon -n -m file /c": "usage: matchpathcon\n",
	}
	got, err := labelOf(t.Context(), run, "/a", Directory)
	require.NoError(t, err)
	assert.Equal(t, keys, got)
	got, err = labelOf(t.Context(), run, "/b", File)
	require.NoError(t, err)
	assert.Empty(t, got, "the policy has none")
	_, err = labelOf(t.Context(), run, "/c", File)
	require.ErrorContains(t, err, "is no label")
	_, err = labelOf(t.Context(), run, "/d", File)
	require.ErrorContains(t, err, "asking the host's SELinux policy about /d: no such file")
}

func TestLabelsOf(t *testing.T) {
	t.Parallel()
	assert.Nil(t, LabelsOf(t.Context(), program{}), "a host without SELinux")
	labels := LabelsOf(t.Context(), program{"selinuxenabled": "", "matchpathcon -n -m file /b": "<<none>>"})
	require.NotNil(t, labels)
	require.NoError(t, labels(nil, "/b", File), "a path without a label is left alone")
	require.Error(t, labels(nil, "/c", File))
}

func TestNewFilesAreLabelled(t *testing.T) {
	t.Parallel()
	_, h := newHost(t)
	labelled := map[string]Kind{}
	h = h.Labelled(func(_ *os.File, at string, kind Kind) error {
		if !strings.HasPrefix(at, "/var/lib") {
			labelled[at] = kind
		}
		return nil
	})
	require.NoError(t, apply(h, &machineconfigs.Config{}, configuration()))
	assert.Equal(t, map[string]Kind{
		"/var/d": Directory, "/var/d/e": Directory, "/var/d/e/new": File, "/etc/secret": File, "/var/home/core/.ssh": Directory,
		"/var/home/core/.ssh/authorized_keys.d": Directory, "/var/home/core/.ssh/authorized_keys.d/ignition": File,
	}, labelled, "what is replaced keeps its label")
}

func TestFilesWithoutALabelAreNotWritten(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	root, h := newHost(t)
	h = h.Labelled(func(*os.File, string, Kind) error { return refused })
	require.ErrorIs(t, apply(h, &machineconfigs.Config{}, configuration()), refused)
	assert.NoFileExists(t, root+"/etc/secret", "a file that has the wrong label is not put in its place")
}
