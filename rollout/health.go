package rollout

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/health"
	"github.com/layerwright/layerwright/rollout/watched"
)

// rereadInterval is the time until what health checks read is looked for again where it can't be
// read: that a kind was installed is not watched.
const rereadInterval = 30 * time.Second

// reads gives what health checks read beside Nodes.
type reads interface {
	Want(ctx context.Context, pool string, keys ...watched.Key)
	Object(key watched.Key) (*unstructured.Unstructured, error)
	OnNode(key watched.Key, node string) ([]*unstructured.Unstructured, error)
}

// compiled are the health checks of a pool, as they were when they were compiled.
type compiled struct {
	spec   []mcfgv1.RolloutHealthCheck
	checks *health.Checks
	err    error
	// keys are what the checks read; an empty one where that is the Node alone.
	keys []watched.Key
}

// healthChecks are the pool's health checks, compiled once for each version of them.
func (r *Reconciler) healthChecks(ctx context.Context, pool *mcfgv1.MachineConfigPool) *compiled {
	var spec []mcfgv1.RolloutHealthCheck
	if pool.Spec.Rollout != nil {
		spec = pool.Spec.Rollout.HealthChecks
	}
	if c := r.checks[pool.Name]; c != nil && reflect.DeepEqual(c.spec, spec) {
		r.reads.Want(ctx, pool.Name, c.wanted()...) // a kind may have been installed
		return c
	}
	c := &compiled{spec: spec, keys: make([]watched.Key, len(spec))}
	c.checks, c.err = health.Compile(spec)
	for i := range spec {
		key, err := keyOf(&spec[i])
		if err != nil {
			c.err = errors.Join(c.err, fmt.Errorf("health check %q: %w", spec[i].Name, err))
		}
		c.keys[i] = key
	}
	r.checks[pool.Name] = c
	r.reads.Want(ctx, pool.Name, c.wanted()...)
	return c
}

// wanted are the keys that are not empty.
func (c *compiled) wanted() []watched.Key {
	return slices.DeleteFunc(slices.Clone(c.keys), func(k watched.Key) bool { return k == watched.Key{} })
}

// keyOf is what a health check reads.
func keyOf(check *mcfgv1.RolloutHealthCheck) (watched.Key, error) {
	if o := check.Object; o != nil {
		return watched.Key{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}, nil
	}
	if check.Pods == nil {
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

// judge evaluates the pool's health checks on the nodes that have been updated to the target.
// Before the first of them is, the expressions are compiled and what they read is read all the
// same: a mistake is to be seen before a node is moved.
func (r *Reconciler) judge(ctx context.Context, s *scope) {
	c := r.healthChecks(ctx, s.pool)
	s.invalid = c.err
	if len(c.spec) == 0 {
		return
	}
	read := r.readings(c)
	for i, key := range c.keys {
		if key == (watched.Key{}) {
			continue
		}
		if reading := read(i, ""); reading.Err != nil && s.unread == "" {
			s.unread = fmt.Sprintf("waits for health check %s: %s", c.spec[i].Name, reading.Err)
		}
	}
	known := map[types.UID]bool{}
	started := s.started()
	for i := range s.members {
		m := &s.members[i]
		n := s.nodes[m.Name]
		known[n.UID] = true
		if m.IsAt(s.verdict.Target) && m.IsOf(started) {
			m.Health = c.checks.Of(n, read, r.clock.Now())
		}
	}
	c.checks.Keep(func(uid types.UID) bool { return known[uid] })
}

// readings gives what checks read.
func (r *Reconciler) readings(c *compiled) health.Reader {
	return func(check int, node string) health.Reading {
		if c.spec[check].Object != nil {
			o, err := r.reads.Object(c.keys[check])
			if err != nil {
				return health.Reading{Err: err}
			}
			return health.Reading{Version: version(o), Value: func() any { return o.Object }}
		}
		pods, err := r.reads.OnNode(c.keys[check], node)
		if err != nil {
			return health.Reading{Err: err}
		}
		var versions strings.Builder
		for _, pod := range pods {
			versions.WriteString(version(pod) + " ")
		}
		return health.Reading{Version: versions.String(), Value: func() any {
			list := make([]any, len(pods))
			for i := range pods {
				list[i] = pods[i].Object
			}
			return list
		}}
	}
}

// version differs for each state of each object.
func version(o *unstructured.Unstructured) string {
	return string(o.GetUID()) + "/" + o.GetResourceVersion()
}

// withoutHeartbeats is a Node without what changes while nothing happens to it, for checks that
// read any field. It shares the rest with the Node.
func withoutHeartbeats(n *corev1.Node) corev1.Node {
	out := *n
	out.ResourceVersion, out.ManagedFields, out.Status.Images = "", nil, nil
	out.Status.Conditions = slices.Clone(n.Status.Conditions)
	for i := range out.Status.Conditions {
		out.Status.Conditions[i].LastHeartbeatTime.Reset()
	}
	return out
}
