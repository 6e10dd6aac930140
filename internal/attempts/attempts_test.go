package attempts

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCount(t *testing.T) {
	t.Parallel()
	const first, most = 10 * time.Second, 6 * time.Minute
	for name, tt := range map[string]struct {
		count   Count
		isSpent bool
		text    string
		pause   time.Duration
	}{
		"nothing has failed":          {Count{0, 3}, false, "attempt 1 of 4", first},
		"the first attempt failed":    {Count{1, 3}, false, "attempt 2 of 4", first},
		"the third attempt failed":    {Count{3, 3}, false, "attempt 4 of 4", 40 * time.Second},
		"the last attempt failed":     {Count{4, 3}, true, "attempt 4 of 4", 80 * time.Second},
		"more failed than there were": {Count{9, 3}, true, "attempt 4 of 4", most},
		"it is never tried again":     {Count{1, 0}, true, "attempt 1 of 1", first},
		"it fails for ever":           {Count{Most, Most}, false, "attempt 101 of 101", most},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.isSpent, tt.count.IsSpent())
			require.Equal(t, tt.text, tt.count.String())
			require.Equal(t, tt.pause, tt.count.Pause(first, most))
		})
	}
}

func TestWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "2": 2, "-5": 0, "many": 0, strconv.Itoa(1 << 40): Most, "99999999999999999999": Most} {
		o := &metav1.ObjectMeta{Annotations: map[string]string{"attempts": text}}
		require.Equal(t, want, Written(o, "attempts"), text)
	}
	require.Zero(t, Written(&metav1.ObjectMeta{}, "attempts"))
}
