package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/layerwright/layerwright/internal/fault"
)

// statusWriteTimeout is the time to write status for a reconcile that used up its own.
const statusWriteTimeout = 5 * time.Second

// Patcher writes the status of one object once, at the end of one reconcile. It knows the object as
// it was read.
type Patcher struct {
	client         client.StatusClient
	original       Object
	owned          []string // nil: all
	freezing       []string
	keepGeneration bool
}

// Option changes how a Patcher writes.
type Option func(*Patcher)

// Owning limits the conditions that are written to the given types (Rules.Types); all others stay
// as they were read. It is for kinds whose conditions several controllers write.
func Owning(conditionTypes ...string) Option {
	return func(p *Patcher) { p.owned = conditionTypes }
}

// Freezing makes the conditions immutable once one of the given types was read as True, as the API
// of MachineOSBuild demands.
func Freezing(conditionTypes ...string) Option {
	return func(p *Patcher) { p.freezing = conditionTypes }
}

// KeepGeneration leaves observedGeneration alone: another controller of the kind, the one that
// writes Ready, moves it.
func KeepGeneration() Option {
	return func(p *Patcher) { p.keepGeneration = true }
}

// NewPatcher remembers obj as it was read. Call it before anything changes obj.
func NewPatcher(c client.StatusClient, obj Object, options ...Option) *Patcher {
	p := &Patcher{client: c, original: copyOf(obj)}
	for _, option := range options {
		option(p)
	}
	return p
}

// Finish writes what the reconcile changed in the status of obj, if anything, and turns its error
// into a result (see Result). Call it once, at the end of the deferred function
// that computed the conditions.
//
// The write is a merge patch of the status alone, bound to the version of obj in hand. A merge
// patch replaces lists as a whole, so without that bond a stale read would wipe out conditions that
// another controller wrote meanwhile, and a status would land on an object deleted and made again
// under the same name. The price is an occasional conflict, which costs one more reconcile.
//
// observedGeneration moves to the generation that was read if the reconcile ended well. It also
// moves if it ended Terminal: the spec was looked at to the end and nothing follows, while tools
// that read kstatus take an older observedGeneration for work in progress and would never show the
// Stalled condition. It never moves back.
//
// A status that could not be written makes any end one to be tried again, also a Terminal one: no
// one has been told yet. An object that is gone needs no status.
func (p *Patcher) Finish(ctx context.Context, obj Object, res reconcile.Result, err error) (reconcile.Result, error) {
	p.settleConditions(obj)
	p.settleGeneration(obj, err)
	log := log.FromContext(ctx)
	writeErr := p.write(ctx, obj)
	switch {
	case writeErr == nil:
		return Result(res, err)
	case apierrors.IsNotFound(writeErr):
		log.V(4).Info("Status not written, the object is gone")
		return Result(res, err)
	case !apierrors.IsConflict(writeErr):
		return reconcile.Result{}, joinWriteError(err, writeErr)
	case fault.IsTransient(err) && !isTerminal(err):
		return Result(res, err)
	default:
		log.V(4).Info("Status not written, the object changed meanwhile")
		return within(res, ConflictDelay), nil
	}
}

// settleConditions puts back what the reconcile must not change, and the transition time of a
// condition that ended as it began.
func (p *Patcher) settleConditions(obj Object) {
	before := p.original.GetConditions()
	if slices.ContainsFunc(p.freezing, func(t string) bool { return IsTrue(before, t) }) {
		obj.SetConditions(slices.Clone(before))
		return
	}
	after := slices.Clone(obj.GetConditions())
	if p.owned != nil && !p.isRefreshed(obj) {
		after = p.onlyOwned(before, after)
	}
	for i := range after {
		if old := Find(before, after[i].Type); old != nil && old.Status == after[i].Status && !old.LastTransitionTime.IsZero() {
			after[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	obj.SetConditions(after)
}

// onlyOwned is before with the owned conditions as they are after, in the order of before.
func (p *Patcher) onlyOwned(before, after []metav1.Condition) []metav1.Condition {
	out := make([]metav1.Condition, 0, len(after))
	for _, c := range before {
		if !slices.Contains(p.owned, c.Type) {
			out = append(out, c)
		} else if now := Find(after, c.Type); now != nil {
			out = append(out, *now)
		}
	}
	for _, c := range after {
		if slices.Contains(p.owned, c.Type) && Find(before, c.Type) == nil {
			out = append(out, c)
		}
	}
	return out
}

// isRefreshed reports whether a write of the reconciler's own (a finalizer) has read obj anew, with
// what others wrote meanwhile.
func (p *Patcher) isRefreshed(obj Object) bool {
	return obj.GetResourceVersion() != p.original.GetResourceVersion()
}

func (p *Patcher) settleGeneration(obj Object, err error) {
	observer, ok := obj.(Observer)
	if !ok {
		return
	}
	observed := observer.GetObservedGeneration()
	if before, ok := p.original.(Observer); ok && !p.isRefreshed(obj) {
		observed = before.GetObservedGeneration()
	}
	if !p.keepGeneration && (err == nil || isTerminal(err)) {
		observed = max(observed, p.original.GetGeneration())
	}
	observer.SetObservedGeneration(observed)
}

// write patches the status if it changed. The object in hand keeps its contents and gets the new
// version.
func (p *Patcher) write(ctx context.Context, obj Object) error {
	data, err := statusPatch(p.original, obj)
	if err != nil {
		return fmt.Errorf("comparing status of %s: %w", describe(obj), err)
	}
	if data == nil {
		return nil
	}
	ctx, cancel := writeContext(ctx)
	defer cancel()
	stored := copyOf(obj)
	if err := p.client.Status().Patch(ctx, stored, client.RawPatch(types.MergePatchType, data)); err != nil {
		return fmt.Errorf("writing status of %s: %w", describe(obj), err)
	}
	obj.SetResourceVersion(stored.GetResourceVersion())
	return nil
}

// statusPatch is the merge patch from the status of one object to that of the other, nil if they
// are the same. It is bound to the version of the latter: obj as it was read, or as a write of the
// reconciler's own left it.
func statusPatch(original, obj Object) ([]byte, error) {
	data, err := client.MergeFrom(original).Data(obj)
	if err != nil {
		return nil, err
	}
	var diff struct {
		Status map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(data, &diff); err != nil || diff.Status == nil {
		return nil, err
	}
	if observer, ok := original.(Observer); ok && observer.GetObservedGeneration() == 0 {
		if err := addZeros(diff.Status, obj); err != nil {
			return nil, err
		}
	}
	version := obj.GetResourceVersion()
	if version == "" {
		return nil, errors.New("the object was never read: it has no resourceVersion")
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]string{"resourceVersion": version},
		"status":   diff.Status,
	})
}

// addZeros adds the counts of 0 to the first patch of a status: a diff takes them for what was read
// of an object that has none.
func addZeros(patch map[string]json.RawMessage, obj Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	fields, _, _ := unstructured.NestedMap(content, "status")
	for name, value := range fields {
		if value == int64(0) {
			patch[name] = json.RawMessage("0")
		}
	}
	return nil
}

// writeContext gives a reconcile that ran out of its own time a little more to say so. A process
// that is told to end gets none: it may no longer be the leader.
func writeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.WithTimeout(context.WithoutCancel(ctx), statusWriteTimeout)
	}
	return context.WithCancel(ctx)
}

// joinWriteError joins the error of the reconcile with that of the write so that the reconcile is
// repeated.
func joinWriteError(err, writeErr error) error {
	if errors.Is(err, reconcile.TerminalError(nil)) { // controller-runtime would find it in a join, and give up
		return fmt.Errorf("%s; %w", err.Error(), writeErr)
	}
	return fault.Join(err, writeErr)
}

// isTerminal reports whether a reconcile that ends with err is not repeated.
func isTerminal(err error) bool {
	return fault.IsTerminal(err) || errors.Is(err, reconcile.TerminalError(nil))
}

// describe names an object in an error; objects read through a typed client don't know their kind.
func describe(obj Object) string {
	return fmt.Sprintf("%s %q", kindOf(obj), client.ObjectKeyFromObject(obj).String())
}

func kindOf(obj Object) string { return reflect.Indirect(reflect.ValueOf(obj)).Type().Name() }

// copyOf is a deep copy of the same type.
func copyOf(obj Object) Object {
	return obj.DeepCopyObject().(Object) // a copy has the type of its original
}
