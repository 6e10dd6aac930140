package status_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/status"
)

// t0 has what the API doesn't store: a zone, and a fraction of a second.
var t0 = time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("CET", 3600))

const minute = time.Minute

func cond(conditionType string, s metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: s, Reason: reason, ObservedGeneration: 1}
}

func TestNotBefore(t *testing.T) {
	t.Parallel()
	changed := func(after ...time.Duration) (conditions []metav1.Condition) {
		for _, d := range after {
			conditions = append(conditions, metav1.Condition{LastTransitionTime: metav1.NewTime(t0.Add(d))})
		}
		return conditions
	}
	tests := map[string]struct {
		conditions []metav1.Condition
		want       time.Time
	}{
		"no condition":                 {want: t0},
		"all changed before":           {conditions: changed(-minute, 0), want: t0},
		"some changed later: the last": {conditions: changed(minute, 2*minute, -minute), want: t0.Add(2 * minute)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, status.NotBefore(t0, tt.conditions))
		})
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	first := metav1.Condition{Type: "A", Status: metav1.ConditionTrue, Reason: "Good", Message: "all well", ObservedGeneration: 1}
	tests := map[string]struct {
		change  func(*metav1.Condition)
		changed bool
		moved   bool
	}{
		"the same again":                     {change: func(*metav1.Condition) {}},
		"a given transition time is ignored": {change: func(c *metav1.Condition) { c.LastTransitionTime = metav1.NewTime(t0.Add(9 * minute)) }},
		"another reason":                     {change: func(c *metav1.Condition) { c.Reason = "Better" }, changed: true},
		"another message":                    {change: func(c *metav1.Condition) { c.Message = "" }, changed: true},
		"another generation":                 {change: func(c *metav1.Condition) { c.ObservedGeneration = 2 }, changed: true},
		"another status":                     {change: func(c *metav1.Condition) { c.Status = metav1.ConditionFalse }, changed: true, moved: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conditions []metav1.Condition
			require.True(t, status.Set(&conditions, t0, first))
			next := first
			tt.change(&next)
			assert.Equal(t, tt.changed, status.Set(&conditions, t0.Add(minute), next))
			require.Len(t, conditions, 1)
			want := status.Second(t0)
			if tt.moved {
				want = status.Second(t0.Add(minute))
			}
			assert.Equal(t, want, conditions[0].LastTransitionTime)
			next.LastTransitionTime = want
			assert.Equal(t, next, conditions[0])
		})
	}
}

func TestSetRepairsReasons(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ reason, want string }{
		"CamelCase":            {"ImageNotFound", "ImageNotFound"},
		"an abbreviation":      {"OOMKilled", "OOMKilled"},
		"a digit":              {"Http404", "Http404"},
		"lower case":           {"evicted", "Evicted"},
		"dashes and spaces":    {"image-not found", "ImageNotFound"},
		"a digit first":        {"404-not-found", "NotFound"},
		"a digit, then a word": {"2fast", "Fast"},
		"punctuation":          {"what?!", "What"},
		"nothing":              {"", status.ReasonUnspecified},
		"nothing usable":       {"äöü 12", status.ReasonUnspecified},
		"far too long":         {strings.Repeat("a", 2000), "A" + strings.Repeat("a", 1023)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conditions []metav1.Condition
			status.Set(&conditions, t0, metav1.Condition{Type: "A", Status: metav1.ConditionTrue, Reason: tt.reason})
			assert.Equal(t, tt.want, conditions[0].Reason)
		})
	}
	t.Run("a message too long, with a secret", func(t *testing.T) {
		t.Parallel()
		var conditions []metav1.Condition
		c := metav1.Condition{Type: "A", Reason: "R", Message: "GET https://a:hunter2@b " + strings.Repeat("é", 5000)}
		status.Set(&conditions, t0, c)
		assert.Equal(t, fault.MaxMessage, utf8.RuneCountInString(conditions[0].Message))
		assert.NotContains(t, conditions[0].Message, "hunter2")
		assert.False(t, status.Set(&conditions, t0, c), "the same again changes nothing")
	})
	t.Run("a transition time that someone left out", func(t *testing.T) {
		t.Parallel()
		conditions := []metav1.Condition{cond("A", metav1.ConditionTrue, "R")}
		assert.True(t, status.Set(&conditions, t0, cond("A", metav1.ConditionTrue, "R")))
		assert.Equal(t, status.Second(t0), conditions[0].LastTransitionTime)
	})
}

func TestRemoveFindIsTrue(t *testing.T) {
	t.Parallel()
	conditions := []metav1.Condition{
		cond("A", metav1.ConditionTrue, "R"), cond("B", metav1.ConditionFalse, "R"), cond("C", metav1.ConditionUnknown, "R"),
	}
	assert.True(t, status.IsTrue(conditions, "A"))
	assert.False(t, status.IsTrue(conditions, "B"))
	assert.False(t, status.IsTrue(conditions, "C"))
	assert.False(t, status.IsTrue(conditions, "D"))
	assert.Equal(t, &conditions[1], status.Find(conditions, "B"))
	assert.Nil(t, status.Find(nil, "B"))
	assert.True(t, status.Remove(&conditions, "B"))
	assert.False(t, status.Remove(&conditions, "B"))
	assert.Equal(t, []metav1.Condition{cond("A", metav1.ConditionTrue, "R"), cond("C", metav1.ConditionUnknown, "R")}, conditions)
}

func TestInit(t *testing.T) {
	t.Parallel()
	var conditions []metav1.Condition
	status.Set(&conditions, t0, cond("B", metav1.ConditionFalse, "Known"))
	status.Init(&conditions, t0.Add(minute), 7, "A", "B", "C")
	unknown := metav1.Condition{
		Status: metav1.ConditionUnknown, Reason: "NotYetObserved", ObservedGeneration: 7, LastTransitionTime: status.Second(t0.Add(minute)),
	}
	a, c := unknown, unknown
	a.Type, c.Type = "A", "C"
	b := cond("B", metav1.ConditionFalse, "Known")
	b.LastTransitionTime = status.Second(t0)
	assert.Equal(t, []metav1.Condition{b, a, c}, conditions)
}

func TestSecond(t *testing.T) {
	t.Parallel()
	assert.Equal(t, time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC), status.Second(t0).Time)
}
