package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeevents "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/host"
)

var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// errKilled ends a reconcile as a kill of the process does: nothing more happens in it.
var errKilled = errors.New("killed")

// machine is a host in memory. It outlives the agents that run on it.
type machine struct {
	w                        *world
	booted, staged, rollback *host.Deployment
	queued                   bool
	arguments                map[string][]string // of deployments, by digest
	boots                    int
	isRebooting              bool
	// ignores reports whether the next boot brings back what runs, and stuck that reboots never
	// happen.
	ignores, stuck           bool
	stageError, unstageError error
	// cantArguments is why the host can't set kernel arguments, and needsStaged that it can do so
	// only of what is staged or runs. whyNotBooted is what its units say of a boot.
	cantArguments error
	needsStaged   bool
	whyNotBooted  string
	// isComposefs and the like are as in host.Status.
	isComposefs, usrIsUnlocked bool
	// softly reports whether what is staged can be had by a soft reboot, and cantSoftly that this
	// fails. softs are how often one was made, and isSoft is that one goes on.
	softly, cantSoftly, isSoft bool
	softs                      int
	// ignoresSoft reports whether a soft reboot brings back what runs, and losesSoft that it loses
	// what is staged besides.
	ignoresSoft, losesSoft bool
	// meanwhile is what happens in the cluster while the host is asked for its status.
	meanwhile func()
	pulls     []string
	trusts    []host.Trust
	// hangs is the image whose registry does not answer; pulling has something when it is asked.
	hangs   string
	pulling chan struct{}
	// checkouts are the names of folders of deployments, by digest; etcs are what /etc had when
	// they were left.
	checkouts map[string]string
	etcs      map[string]map[string]string
}

func deployment(digit string) *host.Deployment {
	return &host.Deployment{Image: nodestest.Pinned(digit), Digest: mcfgv1.ImageDigestFormat(nodestest.Pinned(digit)).Digest()}
}

func (m *machine) next() *host.Deployment {
	switch {
	case m.staged != nil:
		return m.staged
	case m.queued:
		return m.rollback
	default:
		return m.booted
	}
}

func (m *machine) Status(context.Context) (host.Status, error) {
	if m.meanwhile != nil {
		m.meanwhile()
	}
	return host.Status{
		Booted: m.booted, Staged: m.staged, Rollback: m.rollback, RollbackQueued: m.queued,
		IsComposefs: m.isComposefs, UsrIsUnlocked: m.usrIsUnlocked,
	}, nil
}

func (m *machine) Stage(ctx context.Context, image mcfgv1.ImageDigestFormat, trust host.Trust) error {
	m.trusts = append(m.trusts, trust)
	if m.stageError != nil {
		return m.stageError
	}
	m.pulls = append(m.pulls, string(image))
	if m.staged == nil && m.booted.Image == string(image) {
		return nil // bootc says that the image is unchanged
	}
	if m.hangs == string(image) {
		m.pulling <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	m.staged = &host.Deployment{Image: string(image), Digest: image.Digest(), Checkout: m.checkouts[image.Digest()], SoftReboots: m.softly}
	m.queued = false
	m.arguments[m.staged.Digest] = slices.Clone(m.arguments[m.booted.Digest])
	return m.w.effect("stage")
}

func (m *machine) Unstage(_ context.Context, image mcfgv1.ImageDigestFormat) error {
	switch {
	case m.unstageError != nil:
		return m.unstageError
	case m.staged.IsOf(image):
		m.staged = nil
	case m.queued && m.rollback.IsOf(image):
		m.queued = false
	}
	return m.w.effect("unstage")
}

func (m *machine) Rollback(context.Context) error {
	m.queued, m.staged = true, nil
	return m.w.effect("rollback")
}

func (m *machine) KernelArguments(context.Context) ([]string, error) {
	return m.arguments[m.key()], nil
}

func (m *machine) CheckKernelArguments(context.Context, host.ArgumentChange) error {
	return m.cantArguments
}

// Lock is that of an ostree which has a command for it.
func (m *machine) Lock(context.Context) error {
	if m.staged != nil {
		m.staged.Locked = true
	}
	return nil
}

func (m *machine) Unlock(context.Context) error {
	if m.staged != nil {
		m.staged.Locked = false
	}
	return nil
}

func (m *machine) WhyNotBooted(context.Context) string { return m.whyNotBooted }

// key tells the arguments of a staged deployment from those of a booted one of the same image.
func (m *machine) key() string {
	if m.staged != nil && m.staged.Digest == m.booted.Digest {
		return "staged"
	}
	return m.next().Digest
}

func (m *machine) SetKernelArguments(_ context.Context, change host.ArgumentChange) error {
	if !slices.Equal(m.arguments[m.key()], change.From) {
		return fmt.Errorf("the command line is %v and not %v", m.arguments[m.key()], change.From)
	}
	if m.needsStaged && m.staged == nil && m.queued {
		return host.ErrNotStaged
	}
	if m.next() == m.booted { // rpm-ostree makes a deployment of the same image
		m.staged = &host.Deployment{Image: m.booted.Image, Digest: m.booted.Digest}
	}
	m.arguments[m.key()] = slices.Clone(change.To)
	return m.w.effect("kernel arguments")
}

func (m *machine) Reboot(context.Context, string) error {
	m.isRebooting, m.isSoft = !m.stuck, false
	return m.w.effect("reboot")
}

func (m *machine) SoftReboot(context.Context) error {
	if m.cantSoftly {
		return errors.New("ostree admin: exit status 1: error: Unknown command 'prepare-soft-reboot'")
	}
	m.isRebooting, m.isSoft = !m.stuck, true
	return m.w.effect("soft reboot")
}

// boot is the reboot. A soft one is the same boot for Linux.
func (m *machine) boot() {
	m.isRebooting = false
	if m.isSoft {
		m.isSoft = false
		if m.ignoresSoft || m.losesSoft {
			if m.losesSoft {
				m.staged = nil
			}
			return
		}
		m.softs++
	} else {
		m.boots++
	}
	if isLocked, _ := m.w.agent.finalization.IsLocked(); isLocked || m.staged != nil && m.staged.Locked {
		m.staged = nil
	}
	_ = os.Remove(filepath.Join(m.w.root, lockFile))
	key, next := m.key(), m.next()
	if m.ignores {
		m.ignores, m.staged, m.queued = false, nil, false
		return
	}
	if key == "staged" {
		m.arguments[m.booted.Digest] = m.arguments[key]
	}
	if next.Digest != m.booted.Digest {
		m.rollback = m.booted
	}
	m.switchEtc(next)
	m.booted, m.staged, m.queued = next, nil, false
}

func (m *machine) bootID() (string, error) { return fmt.Sprint("boot-", m.boots), nil }

// world is a cluster and a host in memory, with the agent that runs on it.
type world struct {
	client.Client
	t        *testing.T
	machine  *machine
	root     string
	clock    *clocktesting.FakePassiveClock
	recorder *kubeevents.FakeRecorder
	agent    *Agent
	// effects are what agents did to the host and to the cluster, in order; after the one with the
	// number killAt the process is killed.
	effects []string
	killAt  int
	// writes counts requests of agents that write.
	writes int
	// unitError is what systemctl says.
	unitError error
}

func (w *world) effect(what string) error {
	w.effects = append(w.effects, what)
	if len(w.effects) == w.killAt {
		return errKilled
	}
	return nil
}

// killingJournal is a journal whose writes are effects.
type killingJournal struct {
	journal
	w *world
}

func (k killingJournal) write(j Journal) error {
	if err := k.journal.write(j); err != nil {
		return err
	}
	return k.w.effect("journal")
}

// rendered is a rendered MachineConfig with a file below /var that says its name.
func rendered(name, digit string, arguments ...string) *mcfgv1.MachineConfig {
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	mc.Spec.OSImageURL, mc.Spec.KernelArguments = nodestest.Pinned(digit), arguments
	mc.Spec.Config.Raw = fmt.Appendf(nil, `{"ignition":{"version":"3.5.0"},"storage":{"files":[
		{"path":"/var/lib/app/name","mode":420,"user":{"id":%d},"group":{"id":%d},"contents":{"source":"data:,%s"}},
		{"path":"/etc/motd","contents":{"source":"data:,whatever%%20the%%20image%%20made%%20of%%20it"}}]}}`, os.Getuid(), os.Getgid(), name)
	return mc
}

// signedOnly is a signature policy that asks for a signature of each image.
const signedOnly = `{"default":[{"type":"reject"}],"transports":{"docker":{"":[{"type":"sigstoreSigned","keyPath":"/etc/pki/key.pub"}]}}}`

// newWorld is a node that runs the image of digit 1 with rendered-1.
func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, root: t.TempDir(), clock: clocktesting.NewFakePassiveClock(t0), recorder: kubeevents.NewFakeRecorder(100)}
	w.machine = &machine{w: w, booted: deployment("1"), arguments: map[string][]string{}}
	for _, dir := range []string{"etc", "usr/etc", "var/lib", "run"} {
		require.NoError(t, os.MkdirAll(filepath.Join(w.root, dir), 0o755))
	}
	w.put("run/ostree-booted", "")
	for _, dir := range []string{"etc", "usr/share"} {
		require.NoError(t, os.MkdirAll(filepath.Join(w.root, dir, "containers"), 0o755))
	}
	w.put("usr/share/containers/policy.json", signedOnly)
	w.put("etc/motd", "hello")
	w.put("usr/etc/motd", "hello")
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcfgv1.AddToScheme, operatorv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	node := nodestest.New("a", []string{"worker"})
	report := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	report.Spec.Pool.Name, report.Spec.Node.Name = "worker", "a"
	pool := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pool.Spec.Configuration.Name = "rendered-2"
	objects = append([]client.Object{node, report, pool, rendered("rendered-1", "1"), rendered("rendered-2", "2", "nosmt quiet")}, objects...)
	w.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(report).Build()
	w.start()
	return w
}

func (w *world) put(at, content string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(filepath.Join(w.root, at), []byte(content), 0o644))
}

func (w *world) get(at string) string {
	content, err := os.ReadFile(filepath.Join(w.root, at))
	if err != nil {
		return ""
	}
	return string(content)
}

// start starts an agent, as after a kill or a boot.
func (w *world) start() {
	a := New(Options{
		Node: "a", Root: w.root, Namespace: "layerwright", BootID: w.machine.bootID, Metrics: metrics.NewAgents(),
		Detect:    func(context.Context, host.Mode) (host.Host, error) { return w.machine, nil },
		Systemctl: w.systemctl,
	})
	a.journal, a.clock, a.events = killingJournal{a.journal, w}, w.clock, events.NewPublisher(w.recorder)
	a.reader = w.Client
	a.client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			w.writes++
			return w.effect("annotations")
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := c.SubResource(sub).Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			w.writes++
			return w.effect("conditions")
		},
	})
	w.agent = a
}

// reconcile makes one reconcile, and what follows a kill or a reboot.
func (w *world) reconcile() (ctrl.Result, error) {
	w.t.Helper()
	res, err := w.agent.Reconcile(w.t.Context(), ctrl.Request{})
	if errors.Is(err, errKilled) {
		w.start()
		res, err = ctrl.Result{RequeueAfter: 1}, nil
	}
	if w.machine.isRebooting {
		w.machine.boot()
		w.start()
		res = ctrl.Result{RequeueAfter: 1}
	}
	return res, err
}

// settle lets the agent work, and the controller drain, until nothing is left to do.
func (w *world) settle() {
	w.t.Helper()
	for range 60 {
		res, err := w.reconcile()
		require.NoError(w.t, err)
		if res.RequeueAfter != 1 && !w.drain() {
			return
		}
	}
	w.t.Fatalf("the agent does not come to an end: %v", w.effects)
}

// until lets the agent work until it has done something.
func (w *world) until(effect string) {
	w.t.Helper()
	for range 60 {
		before := len(w.effects)
		_, err := w.reconcile()
		require.NoError(w.t, err)
		if slices.Contains(w.effects[before:], effect) {
			return
		}
		w.drain()
	}
	w.t.Fatalf("the agent never does %s: %v", effect, w.effects)
}

// drain does as the controller is asked to, and reports whether it was.
func (w *world) drain() bool {
	a := w.node().Annotations
	if a[mcfgv1.AnnotationDesiredDrain] == a[mcfgv1.AnnotationLastAppliedDrain] {
		return false
	}
	w.annotate(mcfgv1.AnnotationLastAppliedDrain, a[mcfgv1.AnnotationDesiredDrain])
	return true
}

func (w *world) node() *corev1.Node {
	w.t.Helper()
	n := &corev1.Node{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: "a"}, n))
	return n
}

// annotate changes annotations as the controller does: keys and values by turns.
func (w *world) annotate(pairs ...string) {
	w.t.Helper()
	n := w.node()
	for i := 0; i < len(pairs); i += 2 {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, pairs[i], pairs[i+1]) //nolint:gosec // the path or index is the program's own
		if pairs[i+1] == "" {                                             //nolint:gosec // the path or index is the program's own
			delete(n.Annotations, pairs[i])
		}
	}
	require.NoError(w.t, w.Update(w.t.Context(), n))
}

// target tells the node what it should have: a configuration, and the image of a digit or none.
func (w *world) target(config, digit string) {
	w.t.Helper()
	image := ""
	if digit != "" {
		image = nodestest.Pinned(digit)
	}
	w.annotate(mcfgv1.AnnotationDesiredConfig, config, mcfgv1.AnnotationDesiredImage, image)
}

// arrived is a world whose node has what it should: rendered-1 and the image of digit 1.
func arrived(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := newWorld(t, objects...)
	w.target("rendered-1", "1")
	w.settle()
	w.writes, w.effects = 0, nil
	return w
}

// is says in a line what the node has, for tests that compare ends.
func (w *world) is() string {
	a := w.node().Annotations
	short := func(key string) string { return mcfgv1.ImageDigestFormat(a[key]).Short() }
	args := w.machine.arguments[w.machine.booted.Digest]
	drain, _, _ := strings.Cut(a[mcfgv1.AnnotationDesiredDrain], "-")
	return fmt.Sprintf("%s %s staged=%q %s %q drain=%s booted=%s next=%s args=%v file=%s",
		a[mcfgv1.AnnotationCurrentConfig], short(mcfgv1.AnnotationCurrentImage), a[mcfgv1.AnnotationStagedImage],
		a[mcfgv1.AnnotationState], a[mcfgv1.AnnotationReason], drain,
		w.machine.booted.Digest[7:13], w.machine.next().Digest[7:13], args, w.get("var/lib/app/name"))
}

// conditions are those of the MachineConfigNode, by type, as "True Reason message".
func (w *world) conditions() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, c := range w.report().Status.Conditions {
		out[c.Type] = strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
	}
	return maps.Clone(out)
}

// report is the MachineConfigNode.
func (w *world) report() *mcfgv1.MachineConfigNode {
	w.t.Helper()
	report := &mcfgv1.MachineConfigNode{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: "a"}, report))
	return report
}

func (w *world) told() (all []string) {
	for len(w.recorder.Events) > 0 {
		all = append(all, <-w.recorder.Events)
	}
	return all
}
