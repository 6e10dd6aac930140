package streams

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func TestEffective(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		lifecycle              mcfgv1.StreamLifecycle
		deprecation, endOfLife string
		now                    string
		want                   mcfgv1.StreamLifecycle
	}{
		"nothing is said":                             {want: mcfgv1.StreamSupported},
		"what is said":                                {lifecycle: mcfgv1.StreamDeprecated, want: mcfgv1.StreamDeprecated},
		"a word of a later version":                   {lifecycle: "Hibernating", want: mcfgv1.StreamSupported},
		"the moment before the day":                   {deprecation: "2027-05-31", now: "2027-05-30T23:59:59Z", want: mcfgv1.StreamSupported},
		"the day has begun":                           {deprecation: "2027-05-31", now: "2027-05-31T00:00:00Z", want: mcfgv1.StreamDeprecated},
		"the day has begun in the east, not in UTC":   {deprecation: "2027-05-31", now: "2027-05-31T01:00:00+02:00", want: mcfgv1.StreamSupported},
		"both days are past":                          {deprecation: "2027-05-31", endOfLife: "2028-05-31", now: "2029-01-01T00:00:00Z", want: mcfgv1.StreamEndOfLife},
		"only an end":                                 {endOfLife: "2028-05-31", now: "2029-01-01T00:00:00Z", want: mcfgv1.StreamEndOfLife},
		"the lifecycle says more than the dates":      {lifecycle: mcfgv1.StreamEndOfLife, deprecation: "2027-05-31", now: "2027-06-01T00:00:00Z", want: mcfgv1.StreamEndOfLife},
		"the dates say more than the lifecycle":       {lifecycle: mcfgv1.StreamSupported, deprecation: "2027-05-31", now: "2027-06-01T00:00:00Z", want: mcfgv1.StreamDeprecated},
		"a day that no calendar has":                  {deprecation: "2027-02-30", now: "2029-01-01T00:00:00Z", want: mcfgv1.StreamSupported},
		"an end before the deprecation is an end    ": {deprecation: "2028-05-31", endOfLife: "2027-05-31", now: "2027-06-01T00:00:00Z", want: mcfgv1.StreamEndOfLife},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, Effective(tt.lifecycle, tt.deprecation, tt.endOfLife, instant(t, tt.now)))
		})
	}
}

func TestNextChange(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ deprecation, endOfLife, now, want string }{
		"none without dates":            {now: "2027-01-01T00:00:00Z"},
		"the earlier of two":            {deprecation: "2027-05-31", endOfLife: "2028-05-31", now: "2027-01-01T00:00:00Z", want: "2027-05-31T00:00:00Z"},
		"the later when one is past":    {deprecation: "2027-05-31", endOfLife: "2028-05-31", now: "2027-05-31T00:00:00Z", want: "2028-05-31T00:00:00Z"},
		"none when both are past":       {deprecation: "2027-05-31", endOfLife: "2028-05-31", now: "2028-05-31T00:00:00Z"},
		"none for what is no day":       {deprecation: "next year", now: "2027-01-01T00:00:00Z"},
		"the end, when it is the first": {deprecation: "2028-05-31", endOfLife: "2027-05-31", now: "2027-01-01T00:00:00Z", want: "2027-05-31T00:00:00Z"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := NextChange(tt.deprecation, tt.endOfLife, instant(t, tt.now))
			assert.Equal(t, tt.want != "", ok)
			assert.True(t, got.Equal(instant(t, tt.want)), "%s", got)
		})
	}
}

// instant reads a time; none is the zero time.
func instant(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	assert.NoError(t, err)
	return at
}
