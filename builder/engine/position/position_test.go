//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package position

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/builder/engine/report"
)

func TestPositionFollowsStagesThatTakeTurns(t *testing.T) {
	t.Parallel()
	p, err := New(`FROM a.example/b AS base
FROM base AS tools
RUN make \
  tools
FROM base
RUN --mount=type=tmpfs,target=/x <<EOF
one
EOF
COPY --from=tools /a /b
FROM base AS later
RUN never
`, "2", nil)
	require.NoError(t, err)
	for _, step := range []struct {
		message    string
		line       int
		done, from int64
	}{
		{"FROM a.example/b AS base", 1, 1, 6},
		{"FROM 0123 AS tools", 2, 2, 6},
		{"FROM 0123", 5, 3, 6},
		{"RUN --mount=type=tmpfs,target=/x <<EOF (one)", 6, 4, 6},
		{"RUN make   tools", 3, 5, 6},
		{"COPY --from=tools /a /b", 9, 6, 6},
	} {
		require.True(t, p.Reached(step.message, []string{"output before " + step.message}), step.message)
		assert.Equal(t, step.line, p.At.Current.line, step.message)
		done, total := p.Progress()
		assert.Equal(t, []int64{step.done, step.from}, []int64{done, total}, step.message)
	}
	assert.False(t, p.Reached("COMMIT localhost/x", nil))

	at, output := p.Failed(errors.New(`building at STEP "RUN make   tools": while running runtime: exit status 2`), []string{"of the copy"})
	assert.Equal(t, 3, at.line, "not the one that was begun last")
	assert.Equal(t, []string{"output before COPY --from=tools /a /b"}, output, "what that one wrote last")

	at, output = p.Failed(errors.New("creating build container: no"), []string{"of the copy"})
	assert.Equal(t, 9, at.line)
	assert.Equal(t, []string{"of the copy"}, output)
}

func TestPositionOfForeignInstructions(t *testing.T) {
	t.Parallel()
	p, err := New("FROM a.example/b\nRUN true\n", "0", nil)
	require.NoError(t, err)
	assert.False(t, p.Reached("RUN before everything", nil))
	at, _ := p.Failed(errors.New("nothing was begun"), nil)
	assert.Nil(t, at)
	require.True(t, p.Reached("FROM a.example/b", nil))
	require.True(t, p.Reached("RUN of the base's ONBUILD", nil))
	assert.Equal(t, 1, p.At.Current.line)
	require.True(t, p.Reached("RUN true", nil))
	assert.Equal(t, 2, p.At.Current.line)

	_, err = New("FROM a.example/b\nRUN <<EOF\n", "0", nil)
	require.Error(t, err)
}

func TestPlaceOfAddedInstructions(t *testing.T) {
	t.Parallel()
	p, err := New("FROM a.example/b\nRUN install usbguard\nRUN make\n", "0", report.Origins{
		{First: 1, Last: 1, What: "the base image"}, {First: 2, Last: 2, What: "the extensions usbguard"}, {First: 3, Last: 3, Admin: 2},
	})
	require.NoError(t, err)
	var places []string
	for _, i := range p.stages[0].instructions {
		places = append(places, p.Place(&i))
	}
	assert.Equal(t, []string{"the base image: FROM a.example/b", "the extensions usbguard", "Containerfile line 2: RUN make"}, places)
}
