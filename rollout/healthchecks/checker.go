package healthchecks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/endpoint"
	"github.com/layerwright/layerwright/rollout/health"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/rollout/prometheus"
	"github.com/layerwright/layerwright/rollout/watched"
	"github.com/layerwright/layerwright/rollout/words"
)

// rereadInterval is the time until what checks read is looked for again where it can't be read:
// that a kind was installed is not watched.
const rereadInterval = 30 * time.Second

// Objects gives the objects that checks read.
type Objects interface {
	Want(ctx context.Context, pool string, keys ...watched.Key)
	Object(key watched.Key) (*unstructured.Unstructured, error)
	OnNode(key watched.Key, node string) ([]*unstructured.Unstructured, error)
}

// Queries gives the answers of Prometheus.
type Queries interface {
	Want(ctx context.Context, pool string, isFollowed bool, queries ...prometheus.Query) time.Duration
	Answer(pool string, q prometheus.Query) (*prometheus.Answer, error)
}

// Options are the settings of checks.
type Options struct {
	// Namespace is Layerwright's: it has the ConfigMaps with Jobs and the Secrets of Prometheus,
	// and Jobs run in it.
	Namespace string
	// SigningSecret is the secret with the signing key, which no Job may use; empty where there is
	// none.
	SigningSecret string
	// UsersAssigned reports whether the cluster gives pods a user, as OpenShift does.
	UsersAssigned bool
	// Begin notes that something is in work until end is called, so that a check which kills the
	// process is found and refused (internal/inwork); nil notes nothing.
	Begin func(ctx context.Context, object, version, retry string) (end func(), err error)
}

// Sources are what a Checker works with.
type Sources struct {
	// Client reads from the cache, and Reader asks the API server.
	Client  client.Client
	Reader  client.Reader
	Objects Objects
	Queries Queries
	Clock   clock.PassiveClock
}

// Checker judges the nodes of pools. It is for one goroutine.
type Checker struct {
	Options
	Sources
	// compiled are the checks of pools, by name.
	compiled map[string]*compiled
}

// compiled are the checks of a pool, as they were when they were compiled.
type compiled struct {
	spec   []mcfgv1.RolloutHealthCheck
	checks *health.Checks
	err    error
	// keys are the objects that checks read; an empty one where there are none.
	keys []watched.Key
	// tests are the Jobs of checks as they were read last, and refused is which of them could not
	// be created, by name.
	tests   []test
	refused map[string]refusal
}

// New makes a Checker.
func New(options Options, sources Sources) *Checker {
	return &Checker{Options: options, Sources: sources, compiled: map[string]*compiled{}}
}

// ForManager makes a Checker that works with a manager's clients. changed is called with the name
// of a pool when something of what its checks read has changed, and may block until its context
// ends.
func ForManager(manager ctrl.Manager, options Options, changed func(ctx context.Context, pool string)) (*Checker, error) {
	asker, err := dynamic.NewForConfigAndClient(manager.GetConfig(), manager.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client for what health checks read: %w", err)
	}
	sets := watched.New(asker, manager.GetRESTMapper(), changed)
	s := Sources{Client: manager.GetClient(), Reader: manager.GetAPIReader(), Objects: sets, Clock: clock.RealClock{}}
	c := New(options, s)
	c.Queries = prometheus.New(endpoint.Secrets(c.Reader, c.Namespace), s.Clock, changed)
	return c, manager.Add(sets)
}

// Scope is a pool as one reconcile sees it.
type Scope struct {
	Pool *mcfgv1.MachineConfigPool
	// Target is what the nodes should have, and Image what they stage for it.
	Target nodes.Target
	Image  string
	// Started is when the first node was told to change to the target; zero where none was, and
	// when all have it. Superseded is the start of the rollout before, where nothing of it was
	// proven. Only nodes that were told in one of them are judged.
	Started, Superseded time.Time
	// IsOpen reports whether nodes may be told to change.
	IsOpen bool
	// Nodes are the pool's Nodes by name, Members what is observed of them. Their Health is set.
	Nodes   map[string]*corev1.Node
	Members []plan.Node
}

// Findings are what checks say of a pool, beside the Health of its nodes.
type Findings struct {
	// Invalid is why the checks can't be followed.
	Invalid error
	// Unread is which check can't be evaluated on any node, because what it reads can't be read;
	// empty where none is.
	Unread string
	// After is after which time the pool has to be judged again although nothing in the cluster
	// changes; zero for never.
	After time.Duration

	jobs work
	// held are checks that may not be evaluated now, by their place in the list, and why.
	held map[int]error
}

// wake has the pool judged again after a time.
func (f *Findings) wake(after time.Duration) {
	if after > 0 && (f.After == 0 || after < f.After) {
		f.After = after
	}
}

// Judge evaluates the pool's health checks on the nodes that have been updated to the target.
// Before the first of them is, the expressions are compiled and what they read is read all the
// same: a mistake is to be seen before a node is moved.
func (c *Checker) Judge(ctx context.Context, p *Scope) (*Findings, error) {
	f := &Findings{held: map[int]error{}}
	of := c.compile(ctx, p.Pool)
	f.Invalid = of.err
	var judged []*plan.Node
	for i := range p.Members {
		if m := &p.Members[i]; m.IsOnTrial(p.Target, p.Started, p.Superseded) {
			judged = append(judged, m)
		}
	}
	var queries []prometheus.Query
	if len(judged) > 0 || p.IsOpen {
		queries = of.queries()
	}
	f.wake(c.Queries.Want(ctx, p.Pool.Name, len(judged) > 0, queries...))
	own, err := c.gatherJobs(ctx, p, of)
	if err != nil {
		return nil, err
	}
	f.jobs.own, f.jobs.remove = own, own.unwanted
	if len(of.spec) == 0 {
		return f, nil
	}
	if err := c.readTests(ctx, of); err != nil {
		return nil, err
	}
	c.findUnread(p, of, f)
	known := map[types.UID]bool{}
	for _, n := range p.Nodes {
		known[n.UID] = true
	}
	for _, m := range judged {
		if m.Health, err = c.judge(ctx, p, of, m, f); err != nil {
			return nil, err
		}
	}
	of.checks.Keep(func(uid types.UID) bool { return known[uid] })
	return f, nil
}

// judge evaluates the checks on one node.
func (c *Checker) judge(ctx context.Context, p *Scope, of *compiled, m *plan.Node, f *Findings) ([]plan.HealthResult, error) {
	n, own := p.Nodes[m.Name], f.jobs.own
	var failed error
	results := of.checks.Of(ctx, n, func(check int, _ string) health.Reading {
		if of.spec[check].Job == nil {
			return c.read(p.Pool.Name, of, check, m)
		}
		result, err := c.follow(ctx, &subject{scope: p, of: of, check: check, member: m, node: n, jobs: own.of(n, p, &of.spec[check]), pods: own.pods}, f)
		failed = errors.Join(failed, err)
		return health.Reading{Result: &result}
	}, func(check int) (func(), error) { return c.note(ctx, p.Pool.Name, of, check, f) }, c.Clock.Now())
	return results, failed
}

// note notes that a check is evaluated.
func (c *Checker) note(ctx context.Context, pool string, of *compiled, check int, f *Findings) (end func(), err error) {
	if c.Begin == nil {
		return func() {}, nil
	}
	if err := f.held[check]; err != nil { // it is not waited for on each node
		return nil, err
	}
	end, err = c.Begin(ctx, fmt.Sprintf("health check %q of MachineConfigPool %q", of.spec[check].Name, pool), of.version(check), "change the check")
	if err != nil {
		f.wake(rereadInterval)
		f.held[check] = err
	}
	return end, err
}

// version differs for each state of a check.
func (of *compiled) version(check int) string {
	text, _ := json.Marshal(&of.spec[check]) //nolint:errchkjson // it was JSON before
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// findUnread finds the first check that can't be evaluated on any node.
func (c *Checker) findUnread(p *Scope, of *compiled, f *Findings) {
	for i := range of.spec {
		var err error
		switch {
		case of.spec[i].Job != nil:
			err = of.tests[i].err
		case of.spec[i].Prometheus != nil && p.IsOpen:
			_, err = c.Queries.Answer(p.Pool.Name, queryOf(&of.spec[i]))
		case of.keys[i] != watched.Key{}:
			err = c.read(p.Pool.Name, of, i, &plan.Node{}).Err
		}
		if err != nil {
			f.Unread = fmt.Sprintf(words.WaitsForHealthCheck+"%s: %s", of.spec[i].Name, err)
			f.wake(rereadInterval)
			return
		}
	}
}

// compile compiles the pool's checks, once for each version of them.
func (c *Checker) compile(ctx context.Context, pool *mcfgv1.MachineConfigPool) *compiled {
	var spec []mcfgv1.RolloutHealthCheck
	if pool.Spec.Rollout != nil {
		spec = pool.Spec.Rollout.HealthChecks
	}
	of := c.compiled[pool.Name]
	if of == nil || !reflect.DeepEqual(of.spec, spec) {
		of = &compiled{spec: spec, keys: make([]watched.Key, len(spec)), tests: make([]test, len(spec)), refused: map[string]refusal{}}
		of.checks, of.err = health.Compile(spec)
		for i := range spec {
			key, err := c.keyOf(&spec[i])
			if err != nil {
				of.err = errors.Join(of.err, fmt.Errorf("health check %q: %w", spec[i].Name, err))
			}
			of.keys[i] = key
		}
		c.compiled[pool.Name] = of
	}
	wanted := slices.DeleteFunc(slices.Clone(of.keys), func(k watched.Key) bool { return k == watched.Key{} })
	c.Objects.Want(ctx, pool.Name, wanted...) // a kind may have been installed
	return of
}

// Forget forgets a pool that is gone, and deletes its Jobs.
func (c *Checker) Forget(ctx context.Context, pool string) error {
	delete(c.compiled, pool)
	c.Objects.Want(ctx, pool)
	c.Queries.Want(ctx, pool, false)
	own, err := c.jobsOf(ctx, pool)
	if err != nil {
		return err
	}
	var errs []error
	for _, job := range own {
		errs = append(errs, c.remove(ctx, job))
	}
	return errors.Join(errs...)
}

// keyOf is which objects a check reads.
func (c *Checker) keyOf(check *mcfgv1.RolloutHealthCheck) (watched.Key, error) {
	switch o := check.Object; {
	case o != nil:
		return watched.Key{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}, nil
	case check.Job != nil:
		return watched.Key{APIVersion: "v1", Kind: "ConfigMap", Namespace: c.Namespace, Name: check.Job.Name}, nil
	case check.Pods == nil:
		return watched.Key{}, nil
	}
	key := watched.Key{APIVersion: "v1", Kind: "Pod", Namespace: check.Pods.Namespace}
	if check.Pods.Selector == nil {
		return key, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(check.Pods.Selector)
	if err != nil {
		return key, fmt.Errorf("selector: %w", err)
	}
	key.Labels = selector.String()
	return key, nil
}
