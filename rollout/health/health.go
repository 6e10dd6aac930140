package health

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/plan"
)

const (
	// costLimit is what an expression may cost on one Node, in the units of CEL. Kubernetes gives
	// each expression of an admission policy as much.
	costLimit = 1_000_000
	// defaultTimeout is how long a node has to become healthy (RolloutHealthCheck.Timeout).
	defaultTimeout = 10 * time.Minute
	// maxValue is how much is kept of what an expression gave, in bytes.
	maxValue = 200
)

// Checks are the compiled health checks of one pool.
type Checks struct {
	checks []check
	seen   map[types.UID]seen
}

type check struct {
	name    string
	timeout time.Duration
	program cel.Program
}

// seen is what the checks said of a Node.
type seen struct {
	version string
	results []plan.HealthResult
}

// Compile compiles the checks of a pool. An error names each check that does not compile, or gives
// something else than true or false, in the compiler's words.
func Compile(list []mcfgv1.RolloutHealthCheck) (*Checks, error) {
	if len(list) == 0 {
		return &Checks{}, nil
	}
	env, err := cel.NewEnv(cel.Variable("node", cel.DynType), ext.Strings(), ext.Sets(), cel.OptionalTypes())
	if err != nil {
		return nil, fmt.Errorf("preparing health checks: %w", err)
	}
	c := &Checks{seen: map[types.UID]seen{}}
	var errs []error
	for i := range list {
		program, err := compile(env, list[i].Expression)
		if err != nil {
			errs = append(errs, fmt.Errorf("health check %q: %w", list[i].Name, err))
			continue
		}
		c.checks = append(c.checks, check{list[i].Name, plan.Duration(list[i].Timeout, defaultTimeout), program})
	}
	return c, errors.Join(errs...)
}

func compile(env *cel.Env, expression string) (cel.Program, error) {
	ast, issues := env.Compile(expression)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("the expression gives a %s: write one that is true or false", t)
	}
	return env.Program(ast, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
}

// Of evaluates the checks on a Node, in their order.
func (c *Checks) Of(n *corev1.Node) []plan.HealthResult {
	if len(c.checks) == 0 {
		return nil
	}
	if s, isKnown := c.seen[n.UID]; isKnown && s.version == n.ResourceVersion && n.ResourceVersion != "" {
		return s.results
	}
	results := c.evaluate(n)
	c.seen[n.UID] = seen{n.ResourceVersion, results}
	return results
}

func (c *Checks) evaluate(n *corev1.Node) []plan.HealthResult {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	var results []plan.HealthResult
	for i := range c.checks {
		r := plan.HealthResult{Name: c.checks[i].name, Timeout: c.checks[i].timeout}
		if err == nil {
			c.checks[i].on(object, &r)
		} else {
			r.Broken, r.Value = true, err.Error()
		}
		r.Value = plan.Shorten(r.Value, maxValue)
		results = append(results, r)
	}
	return results
}

// on evaluates one check.
func (c *check) on(node map[string]any, r *plan.HealthResult) {
	value, _, err := c.program.Eval(map[string]any{"node": node})
	if err != nil {
		r.Broken, r.Value = true, err.Error()
		return
	}
	holds, isBool := value.Value().(bool)
	r.Holds, r.Broken, r.Value = holds, !isBool, fmt.Sprint(value.Value())
	if r.Broken {
		r.Value = "it gives " + r.Value + ", which is neither true nor false"
	}
}

// Keep forgets all Nodes but those that a function knows.
func (c *Checks) Keep(isKnown func(types.UID) bool) {
	for uid := range c.seen {
		if !isKnown(uid) {
			delete(c.seen, uid)
		}
	}
}
