package trust_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/trust"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func TestMeet(t *testing.T) {
	t.Parallel()
	any1, old := trust.Demands{Provenance: true}, trust.Demands{Provenance: true, NotOlderThan: 24 * time.Hour}
	ci := trust.Demands{Provenance: true, Builders: []string{"https://ci/os"}}
	said := func(text string) json.RawMessage { return json.RawMessage(`{"runDetails":` + text + `}`) }
	tests := map[string]struct {
		demands    trust.Demands
		predicates []json.RawMessage
		want       string
	}{
		"nothing is asked for":       {trust.Demands{}, nil, ""},
		"none":                       {any1, nil, "it has no provenance"},
		"any":                        {any1, []json.RawMessage{[]byte(`{}`)}, ""},
		"no JSON":                    {any1, []json.RawMessage{[]byte(`{`)}, "its provenance can't be read"},
		"another shape":              {any1, []json.RawMessage{[]byte(`[]`)}, "its provenance can't be read"},
		"the builder":                {ci, []json.RawMessage{said(`{"builder":{"id":"https://ci/os"}}`)}, ""},
		"another builder":            {ci, []json.RawMessage{said(`{"builder":{"id":"https://ci/os-evil"}}`)}, `it was built by "https://ci/os-evil", and only ["https://ci/os"] are trusted`},
		"no builder":                 {ci, []json.RawMessage{[]byte(`{}`)}, `it was built by ""`},
		"one of two says it":         {ci, []json.RawMessage{said(`{"builder":{"id":"x"}}`), said(`{"builder":{"id":"https://ci/os"}}`)}, ""},
		"young":                      {old, []json.RawMessage{said(`{"metadata":{"finishedOn":"2026-07-31T12:00:00Z"}}`)}, ""},
		"too old":                    {old, []json.RawMessage{said(`{"metadata":{"finishedOn":"2026-07-31T11:59:59Z"}}`)}, "it was built at 2026-07-31T11:59:59Z, and is older than 24h0m0s"},
		"begun, of an unknown end":   {old, []json.RawMessage{said(`{"metadata":{"startedOn":"2026-08-01T11:00:00Z"}}`)}, ""},
		"the end counts":             {old, []json.RawMessage{said(`{"metadata":{"startedOn":"2026-08-01T11:00:00Z","finishedOn":"2025-08-01T11:00:00Z"}}`)}, "and is older than"},
		"no time":                    {old, []json.RawMessage{said(`{"metadata":{}}`)}, "does not say when it was built"},
		"no time that is one":        {old, []json.RawMessage{said(`{"metadata":{"finishedOn":"yesterday"}}`)}, "its provenance can't be read"},
		"a clock that is ahead":      {old, []json.RawMessage{said(`{"metadata":{"finishedOn":"2026-08-01T12:05:00Z"}}`)}, ""},
		"from the future":            {old, []json.RawMessage{said(`{"metadata":{"finishedOn":"2999-01-01T00:00:00Z"}}`)}, "which is in the future"},
		"each says half of it":       {trust.Demands{Provenance: true, Builders: []string{"a"}, NotOlderThan: time.Hour}, []json.RawMessage{said(`{"builder":{"id":"a"}}`), said(`{"metadata":{"finishedOn":"2026-08-01T12:00:00Z"}}`)}, "does not say when"},
		"a time in another timezone": {old, []json.RawMessage{said(`{"metadata":{"finishedOn":"2026-07-31T14:00:00+02:00"}}`)}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.demands.Meet(tt.predicates, now)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}
