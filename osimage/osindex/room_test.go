package osindex_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/osimage/osindex"
)

// TestOrderOfNamesMattersLittle compares how long it takes to index names in descending order with
// how long it takes in ascending order.
func TestOrderOfNamesMattersLittle(t *testing.T) {
	t.Parallel()
	const count = 200_000
	var up, down []tar.Header
	for i := range count {
		up = append(up, symlink(fmt.Sprintf("d/%06d", i), "x"))
		down = append(down, symlink(fmt.Sprintf("d/%06d", count-1-i), "x"))
	}
	took := func(layer []byte) (*osindex.Index, time.Duration) {
		start := time.Now()
		x := &osindex.Index{}
		require.NoError(t, x.Apply(bytes.NewReader(layer)))
		return x, time.Since(start)
	}
	first, fast := took(archive(t, up...))
	second, slow := took(archive(t, down...))
	assert.Equal(t, encoded(t, first), encoded(t, second))
	assert.Less(t, slow, 10*fast)
}

func TestAnIndexAsksForRoomBeforeItTakesIt(t *testing.T) {
	t.Parallel()
	var links []tar.Header
	for i := range 20_000 {
		links = append(links, symlink(fmt.Sprintf("%06d", i), long(400)))
	}
	granted, limit := 0, 1<<30
	room := func(bytes int) error {
		if granted+bytes > limit {
			return errors.New("no room")
		}
		granted += bytes
		return nil
	}
	x := osindex.New(room)
	require.NoError(t, x.Apply(bytes.NewReader(archive(t, links...))))
	assert.GreaterOrEqual(t, granted, x.Bytes())
	data := encoded(t, x)
	needed := granted

	granted, limit = 0, needed
	_, err := osindex.DecodeIn(bytes.NewReader(data), room)
	require.NoError(t, err)
	assert.InDelta(t, needed, granted, 4<<20, "decoding asks for as much")

	granted, limit = 0, needed/2
	var full *osindex.RoomError
	_, err = osindex.DecodeIn(bytes.NewReader(data), room)
	require.ErrorAs(t, err, &full)
	granted = 0
	require.ErrorAs(t, osindex.New(room).Apply(bytes.NewReader(archive(t, links...))), &full)
	assert.EqualError(t, full, "no room")
}
