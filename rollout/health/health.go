package health

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/words"
)

const (
	// costLimit is what an expression may cost on one Node, in the units of CEL. Kubernetes gives
	// each expression of an admission policy as much.
	costLimit = 1_000_000
	// costLimitOfAll is what it may cost on all Nodes between one Keep and the next. One that is
	// cheap on each of 5,000 Nodes stays far below.
	costLimitOfAll = 10 * costLimit
	// timeLimit is how long an evaluation may take, which ends it where costs say too little; it is
	// looked at once in interruptInterval elements of a list.
	timeLimit         = 10 * time.Second
	interruptInterval = 100
	// timeLimitOfAll is how long all checks of a pool may take on all Nodes between one Keep and
	// the next: other pools wait meanwhile.
	timeLimitOfAll = 20 * time.Second
	// maxValue is how much is kept of what an expression gave, in bytes.
	maxValue = 200
)

// Checks are the compiled health checks of one pool.
type Checks struct {
	checks []check
	seen   map[types.UID][]seen
	// took is how long evaluations have taken since the last Keep, by the clock.
	took  time.Duration
	clock clock.PassiveClock
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
	// spent is what it has cost since the last Keep.
	spent uint64
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

// Begin is told that a check is evaluated until end is called, or says why it may not be.
type Begin func(check int) (end func(), err error)

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
	c := &Checks{seen: map[types.UID][]seen{}, clock: clock.RealClock{}}
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
	c.program, err = env.Program(ast, programOptions()...)
	return err
}

// Of evaluates the checks on a Node, in their order. What neither the Node nor anything else has
// changed for is not evaluated again, but for what could not be evaluated at all.
func (c *Checks) Of(ctx context.Context, n *corev1.Node, read Reader, begin Begin, now time.Time) []plan.HealthResult {
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
			results[i].Name, results[i].Timeout, results[i].Value = one.name, one.timeout, words.Shorten(reading.Result.Value, maxValue)
			continue
		}
		version := n.ResourceVersion + " " + reading.Version
		if reading.Err != nil || version != was.version || n.ResourceVersion == "" {
			end, err := c.begin(one, begin)
			if reading.Err == nil {
				reading.Err = err
			}
			began := c.clock.Now()
			*was = seen{version, one.on(ctx, object, &reading, was.result, now)}
			c.took += c.clock.Since(began)
			end()
		}
		if reading.Err != nil {
			was.version = "" // the next reading is another one
		}
		results[i] = was.result
	}
	return results
}

// Why a check is not evaluated on more Nodes now.
var (
	errTooMuch = fmt.Errorf("on all nodes together it costs more than %d units at once: make the expression cheaper, or let it read less", costLimitOfAll)
	errTooLong = fmt.Errorf("the pool's checks take more than %s at once on all nodes together: make their expressions cheaper, or let them read less", timeLimitOfAll)
)

// begin notes that a check is evaluated, unless it may not be.
func (c *Checks) begin(one *check, begin Begin) (end func(), err error) {
	none := func() {}
	switch {
	case one.spent > costLimitOfAll:
		return none, errTooMuch
	case c.took > timeLimitOfAll:
		return none, errTooLong
	case begin == nil:
		return none, nil
	}
	if end, err = begin(one.place); err != nil {
		return none, err
	}
	return end, nil
}

// on evaluates a check. before is what it said last. The Node is made what CEL reads only where the
// expression names it, which costs more than most expressions do.
func (c *check) on(ctx context.Context, node func() any, reading *Reading, before plan.HealthResult, now time.Time) plan.HealthResult {
	r := plan.HealthResult{Name: c.name, Timeout: c.timeout}
	value, err := c.value(ctx, node, reading)
	switch value := value.(type) {
	case celtypes.Bool:
		r.Holds, r.Value = bool(value), strconv.FormatBool(bool(value))
		if !value && reading.Text != nil {
			r.Value += ", with " + reading.Text()
		}
	case celtypes.String:
		r.Holds, r.Value, r.Broken = value == "", string(value), !c.givesText
	default:
		r.Broken = true
	}
	if r.Broken {
		r.Value = fmt.Sprintf("it gives %s, which is neither true nor false", inWords(value))
	}
	if err != nil {
		r.Value = err.Error()
	}
	if r.Value = words.Shorten(fault.Clean(r.Value), maxValue); !r.Holds && !r.Broken {
		r.Since = now
		if !before.Since.IsZero() {
			r.Since = before.Since
		}
	}
	return r
}

// inWords is a value for people. What is in a list could be written out without end.
func inWords(v ref.Val) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case celtypes.String:
		return words.Shorten(string(v), maxValue)
	case celtypes.Int, celtypes.Uint, celtypes.Double, celtypes.Null:
		return fmt.Sprint(v.Value())
	default:
		return "a " + v.Type().TypeName()
	}
}

// value evaluates the expression.
func (c *check) value(ctx context.Context, node func() any, reading *Reading) (ref.Val, error) {
	if reading.Err != nil {
		return nil, reading.Err
	}
	variables := map[string]any{"node": node}
	if c.reads != "" {
		variables[c.reads] = reading.Value()
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	value, details, err := c.program.ContextEval(ctx, variables)
	if details != nil && details.ActualCost() != nil {
		c.spent += *details.ActualCost()
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Keep forgets all Nodes but those that a function knows, and what the checks have cost.
func (c *Checks) Keep(isKnown func(types.UID) bool) {
	c.took = 0
	for i := range c.checks {
		c.checks[i].spent = 0
	}
	for uid := range c.seen {
		if !isKnown(uid) {
			delete(c.seen, uid)
		}
	}
}
