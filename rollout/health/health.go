package health

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/plan"
)

const (
	// costLimit is what an expression may cost on one Node, in the units of CEL. Kubernetes gives
	// each expression of an admission policy as much.
	costLimit = 1_000_000
	// maxValue is how much is kept of what an expression gave, in bytes.
	maxValue = 200
)

// Checks are the compiled health checks of one pool.
type Checks struct {
	checks []check
	seen   map[types.UID][]seen
}

type check struct {
	name    string
	timeout time.Duration
	program cel.Program
	// place is its place in the list of the pool, and givesText that it says what is wrong.
	place     int
	givesText bool
	// reads is the variable beside node; empty where there is none.
	reads string
}

// seen is what a check said of a Node.
type seen struct {
	version string
	result  plan.HealthResult
}

// Reading is what a check reads beside the Node.
type Reading struct {
	// Version differs when Value does.
	Version string
	// Value is that of the variable pods, object or result. It is not called where nothing has
	// changed.
	Value func() any
	// Text is Value in a few words, for people who see that the expression gave false. It may be
	// nil.
	Text func() string
	// Result is what the check says, where it has no expression. Name and Timeout are set for it.
	Result *plan.HealthResult
	// Err is why there is no value.
	Err error
}

// Reader gives what a check reads beside the Node of a name. check is its place in the list.
type Reader func(check int, node string) Reading

// Compile compiles the checks of a pool. An error names each check that does not compile, or gives
// something else than true, false or a text, in the compiler's words.
func Compile(list []mcfgv1.RolloutHealthCheck) (*Checks, error) {
	if len(list) == 0 {
		return &Checks{}, nil
	}
	env, err := cel.NewEnv(append(texts(), cel.Variable("node", cel.DynType), ext.Sets(), cel.OptionalTypes())...)
	if err != nil {
		return nil, fmt.Errorf("preparing health checks: %w", err)
	}
	c := &Checks{seen: map[types.UID][]seen{}}
	var errs []error
	for i := range list {
		one := check{name: list[i].Name, timeout: plan.Duration(list[i].Timeout, plan.DefaultHealthTimeout), place: i, reads: reads(&list[i])}
		if list[i].Job == nil {
			if err := one.compile(env, list[i].Expression); err != nil {
				errs = append(errs, fmt.Errorf("health check %q: %w", list[i].Name, err))
				continue
			}
		}
		c.checks = append(c.checks, one)
	}
	return c, errors.Join(errs...)
}

// reads is the variable that a check has beside node. One with a job has no expression that could
// read it.
func reads(c *mcfgv1.RolloutHealthCheck) string {
	switch {
	case c.Pods != nil:
		return "pods"
	case c.Object != nil:
		return "object"
	case c.Prometheus != nil:
		return "result"
	case c.Job != nil:
		return "job"
	default:
		return ""
	}
}

func (c *check) compile(env *cel.Env, expression string) error {
	var err error
	switch c.reads {
	case "pods", "result":
		env, err = env.Extend(cel.Variable(c.reads, cel.ListType(cel.DynType)))
	case "object":
		env, err = env.Extend(cel.Variable(c.reads, cel.DynType))
	}
	if err != nil {
		return err
	}
	ast, issues := env.Compile(expression)
	if err := issues.Err(); err != nil {
		return err
	}
	t := ast.OutputType()
	c.givesText = t.IsExactType(cel.StringType)
	if !c.givesText && !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return fmt.Errorf("the expression gives a %s: write one that is true or false, or a text that says what is wrong", t)
	}
	c.program, err = env.Program(ast, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
	return err
}

// Of evaluates the checks on a Node, in their order. What neither the Node nor anything else has
// changed for is not evaluated again.
func (c *Checks) Of(n *corev1.Node, read Reader, now time.Time) []plan.HealthResult {
	if len(c.checks) == 0 {
		return nil
	}
	before := c.seen[n.UID]
	if before == nil {
		before = make([]seen, len(c.checks))
		c.seen[n.UID] = before
	}
	object := sync.OnceValue(func() any {
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
		if err != nil {
			return celtypes.WrapErr(err)
		}
		return o
	})
	results := make([]plan.HealthResult, len(c.checks))
	for i := range c.checks {
		one, was := &c.checks[i], &before[i]
		var reading Reading
		if one.reads != "" {
			reading = read(one.place, n.Name)
		}
		if reading.Result != nil {
			results[i] = *reading.Result
			results[i].Name, results[i].Timeout, results[i].Value = one.name, one.timeout, plan.Shorten(reading.Result.Value, maxValue)
			continue
		}
		version := n.ResourceVersion + " " + reading.Version
		if reading.Err != nil || version != was.version || n.ResourceVersion == "" {
			*was = seen{version, one.on(object, &reading, was.result, now)}
		}
		if reading.Err != nil {
			was.version = "" // the next reading is another one
		}
		results[i] = was.result
	}
	return results
}

// on evaluates a check. before is what it said last. The Node is made what CEL reads only where the
// expression names it, which costs more than most expressions do.
func (c *check) on(node func() any, reading *Reading, before plan.HealthResult, now time.Time) plan.HealthResult {
	r := plan.HealthResult{Name: c.name, Timeout: c.timeout}
	value, err := c.value(node, reading)
	switch value := value.(type) {
	case bool:
		r.Holds, r.Value = value, strconv.FormatBool(value)
		if !value && reading.Text != nil {
			r.Value += ", with " + reading.Text()
		}
	case string:
		r.Holds, r.Value, r.Broken = value == "", value, !c.givesText
	default:
		r.Broken = true
	}
	if r.Broken {
		r.Value = fmt.Sprintf("it gives %v, which is neither true nor false", value)
	}
	if err != nil {
		r.Value = err.Error()
	}
	if r.Value = plan.Shorten(fault.Clean(r.Value), maxValue); !r.Holds && !r.Broken {
		r.Since = now
		if !before.Since.IsZero() {
			r.Since = before.Since
		}
	}
	return r
}

// value evaluates the expression.
func (c *check) value(node func() any, reading *Reading) (any, error) {
	if reading.Err != nil {
		return nil, reading.Err
	}
	variables := map[string]any{"node": node}
	if c.reads != "" {
		variables[c.reads] = reading.Value()
	}
	value, _, err := c.program.Eval(variables)
	if err != nil {
		return nil, err
	}
	return value.Value(), nil
}

// Keep forgets all Nodes but those that a function knows.
func (c *Checks) Keep(isKnown func(types.UID) bool) {
	for uid := range c.seen {
		if !isKnown(uid) {
			delete(c.seen, uid)
		}
	}
}
