package health_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/health"
	"github.com/layerwright/layerwright/rollout/plan"
)

// times evaluates something ten times in each of some lists within each other. Variables are v0,
// v1 and so on, the innermost first.
func times(depth int, inner string) string {
	for i := range depth {
		inner = fmt.Sprintf("[1,2,3,4,5,6,7,8,9,10].map(v%d, %s)", i, inner)
	}
	return inner + " == []"
}

// elements are those of a list or map, with the numbers from 100 on.
func elements(format string, count int) string {
	list := make([]string, count)
	for i := range list {
		list[i] = fmt.Sprintf(format, i+100)
	}
	return strings.Join(list, ",")
}

// shared is a list of 4^18 elements that are all the same few lists.
var shared = `[1]` + strings.Repeat(`.map(b, [b,b,b,b])`, 18)

// few is a list of 4^4 elements.
const few = `[1].map(a, [a]).map(b, [b,b,b,b]).map(b, [b,b,b,b]).map(b, [b,b,b,b]).map(b, [b,b,b,b])`

// TestHostileExpressions is about what expressions of at most some kilobytes take. What is made of
// text is ten bytes for each unit of costs.
func TestHostileExpressions(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	const (
		tooCostly, tooMany = "operation cancelled: actual cost limit exceeded", "values of more than 100000 elements are compared"
		most               = 200 << 20
	)
	long := `node.metadata.name.replace("a", node.metadata.name)` // a million bytes of a thousand
	tests := map[string]struct{ expression, want string }{
		"a thousand texts of a megabyte":    {times(3, long), tooCostly},
		"texts of texts":                    {times(3, `"aaaaaaaaaa".replace("a", "bbbbbbbbbb").replace("b", "cccccccccc").replace("c", "dddddddddd")`), tooCostly},
		"lower case":                        {times(3, long+".lowerAscii()"), tooCostly},
		"added texts":                       {times(3, long+" + "+long), tooCostly},
		"bytes":                             {times(4, "bytes("+long+")"), tooCostly},
		"characters":                        {times(4, long+".charAt(5)"), tooCostly},
		"parts of a text":                   {times(3, `node.metadata.name.split("")`), tooCostly},
		"texts of numbers":                  {times(5, "[string(v1)]"), tooCostly},
		"maps":                              {times(5, "{v0: {v1: v2}, v1 + 100: 1}"), tooCostly},
		"a map of many constants":           {times(5, "{v0: 0, "+elements("%d: 0", 600)+"}"), tooCostly},
		"a list of many constants":          {times(5, "[v0, "+elements("%d", 900)+"]"), tooCostly},
		"a list with an optional element":   {times(5, "[?optional.of(v0), "+elements("%d", 900)+"]"), tooCostly},
		"a map with an optional entry":      {times(5, "{?v0: optional.of(1), "+elements("%d: 0", 600)+"}"), tooCostly},
		"lists":                             {times(5, "[v0, [v1, [v2, [v3]]]]"), tooCostly},
		"a list that doubles":               {`[1].map(a, [a])` + strings.Repeat(".map(b, b + b)", 40) + " == []", tooCostly},
		"empty texts joined":                {`[""].map(a, [a])` + strings.Repeat(".map(b, b + b)", 15) + ".map(b, " + times(2, "b.join()") + ") == []", tooCostly},
		"a list in itself, equal":           {shared + " == " + shared, tooMany},
		"a list in itself, not equal":       {shared + " != " + shared, tooMany},
		"a list in itself, in another":      {shared + " in [" + shared + "]", tooMany},
		"a list in itself, as a set":        {"sets.contains(" + shared + ", " + shared + ")", tooCostly},
		"a list in itself, and a short one": {shared + ".map(s, " + times(5, "dyn(s) != dyn([1])") + ") == []", tooCostly},
		"sets of a list":                    {times(5, "sets.contains(["+few+"], ["+few+"])"), tooCostly},
		"a pattern that repeats, often":     {times(4, `node.metadata.name.matches("(a?){300}b")`), tooCostly},
		"a pattern that is made, often":     {times(4, `"".matches("(a?){900}b" + node.metadata.name)`), tooCostly},
		"a list in itself, as the result":   {"dyn(" + shared + ")", "it gives a list, which is neither true nor false"},
		"a place in a text":                 {times(3, long+`.indexOf(`+long+`.substring(5) + "b")`), tooCostly},
		"a long text and a pattern":         {long + `.matches("a{40}b")`, "a text of 1000000 bytes is too long for a regular expression of this size"},
		"a pattern that is made":            {`"a".matches("(` + strings.Repeat("ab{900}", 40) + `)" + node.metadata.name)`, "a regular expression repeats too much: use smaller numbers of repetitions"},
		"a pattern of many bytes":           {`"a".matches(` + long + ")", "a regular expression has more than 4096 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // as above
			synctest.Test(t, func(t *testing.T) { // the time stands still: costs alone end it
				c, err := health.Compile(checks(tt.expression))
				require.NoError(t, err)
				n := node()
				n.Name = strings.Repeat("a", 1000)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				got := of(c, n)[0]
				runtime.ReadMemStats(&after)
				assert.True(t, got.Broken)
				assert.Equal(t, tt.want, got.Value)
				assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(most), "bytes that were allocated, garbage included")
			})
		})
	}
}

func TestExpressionsThatCannotBeBounded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ expression, want string }{
		"a pattern that repeats": {
			`node.metadata.name.matches("` + strings.Repeat("ab{900}", 40) + `")`, `health check "c0": a regular expression repeats too much`,
		},
		"a message": {`dyn(google.protobuf.ListValue{values: [dyn(1)]}) == dyn(1)`, "messages are not available"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := health.Compile(checks(tt.expression))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestBoundedFunctionsDoAsBefore(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		`[1, 2] == [1, 2] && [1] != [2] && {"a": [1]} == {"a": [1]} && dyn(1) == 1.0`,
		`"a" in ["a", "b"] && !(3 in [1, 2]) && "disk" in node.metadata.labels && [1] in [[1], [2]]`,
		`sets.contains([1, 2], [2]) && !sets.contains([1], [2]) && sets.intersects([1, 2], [2, 3]) && sets.equivalent([1, 1, 2], [2, 1])`,
		`!sets.intersects([1], [2]) && !sets.equivalent([1], [1, 2])`,
		`"linux-6.1".matches("^linux-[0-9.]+$") && !"a".matches("b" + node.metadata.name) && matches("abc", "b")`,
		`"größe".indexOf("ß") == 3 && "tacocat".indexOf("c", 3) == 4 && "a".indexOf("b") == -1 && "ab".indexOf("") == 0 && "ab".indexOf("a", 5) == -1`,
		`"größe".lastIndexOf("ß") == 3 && "tacocat".lastIndexOf("c", 3) == 2 && "a".lastIndexOf("b") == -1 && "ab".lastIndexOf("") == 2`,
		`"tacocat".lastIndexOf("a", 5) == 5 && "tacocat".lastIndexOf("t", 0) == 0 && "ab".lastIndexOf("b", 9) == -1`,
		`optional.of([1]) == optional.of([1]) && node.?nothing == optional.none()`,
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			c, err := health.Compile(checks(expression))
			require.NoError(t, err)
			assert.Equal(t, "true", of(c, node())[0].Value)
		})
	}
}

func TestCostsOfAllNodesTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the time stands still, which is limited too
		c, err := health.Compile(checks(`node.metadata.name.replace("a", node.metadata.name).replace("a", "b").replace("b", "c") == ""`, "true"))
		require.NoError(t, err)
		judge := func() (refused int) {
			for i := range 30 {
				n := node()
				n.UID, n.Name = types.UID(fmt.Sprint(i)), strings.Repeat("a", 1000)
				results := of(c, n)
				assert.True(t, results[1].Holds, "other checks are evaluated")
				if !results[0].Broken {
					continue
				}
				if strings.HasPrefix(results[0].Value, "on all nodes together it costs more than 10000000 units at once") {
					refused++
				}
			}
			return refused
		}
		assert.NotZero(t, judge())
		c.Keep(func(types.UID) bool { return true })
		assert.Zero(t, judge(), "what was refused is evaluated the next time, and nothing else")
	})
}

func TestTimeOfAllNodesTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := health.Compile([]mcfgv1.RolloutHealthCheck{{Name: "slow", Expression: "true", Object: &mcfgv1.RolloutHealthObject{}}})
		require.NoError(t, err)
		read := func(int, string) health.Reading {
			return health.Reading{Value: func() any {
				time.Sleep(11 * time.Second)
				return nil
			}}
		}
		judge := func(uid types.UID) plan.HealthResult {
			n := node()
			n.UID = uid
			return c.Of(t.Context(), n, read, nil, t0)[0]
		}
		assert.True(t, judge("1").Holds)
		assert.True(t, judge("2").Holds)
		assert.Contains(t, judge("3").Value, "the pool's checks take more than 20s at once on all nodes together")
		c.Keep(func(types.UID) bool { return true })
		assert.True(t, judge("3").Holds, "it is evaluated the next time")
	})
}

func TestEvaluationIsNotedByName(t *testing.T) {
	t.Parallel()
	c, err := health.Compile([]mcfgv1.RolloutHealthCheck{{Name: "first", Expression: "true"}, {Name: "second", Expression: "true"}})
	require.NoError(t, err)
	var begun []int
	ended := 0
	begin := func(check int) (func(), error) {
		if check == 1 {
			return nil, errors.New("the controller was killed")
		}
		begun = append(begun, check)
		return func() { ended++ }, nil
	}
	for range 2 {
		results := c.Of(t.Context(), node(), nil, begin, t0)
		assert.True(t, results[0].Holds)
		assert.True(t, results[1].Broken)
		assert.Equal(t, "the controller was killed", results[1].Value)
	}
	assert.Equal(t, []int{0}, begun, "what is known is not evaluated")
	assert.Equal(t, 1, ended)
	begin = func(int) (func(), error) { return func() {}, nil }
	assert.True(t, c.Of(t.Context(), node(), nil, begin, t0)[1].Holds, "what was refused is tried again")
}
