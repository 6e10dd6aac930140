package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	openshiftv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/host"
)

// deploymentsDir is where the host has the files of deployments.
const deploymentsDir = "sysroot/ostree/deploy/default/deploy"

func (w *world) systemctl(_ context.Context, args ...string) ([]byte, error) {
	if args[0] == "show" {
		if args[len(args)-1] == "crio.service" {
			return []byte("not-found\n"), nil
		}
		return []byte("loaded\n"), nil
	}
	if err := w.effect("systemctl " + strings.Join(args, " ")); err != nil {
		return nil, errors.Join(err, context.Canceled)
	}
	return nil, w.unitError
}

// image gives a digit's image files, by their path in the image.
func (w *world) image(digit string, files map[string]string) {
	w.t.Helper()
	checkout := digit + "f.0"
	w.machine.checkouts[mcfgv1.ImageDigestFormat(nodestest.Pinned(digit)).Digest()] = checkout
	for at, content := range files {
		at = filepath.Join(w.root, deploymentsDir, checkout, at)
		require.NoError(w.t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(w.t, os.WriteFile(at, []byte(content), 0o644))
	}
}

// etc are the files of a folder by their path in it.
func (w *world) etc(dir string) map[string]string {
	w.t.Helper()
	out, root := map[string]string{}, os.DirFS(filepath.Join(w.root, dir))
	require.NoError(w.t, fs.WalkDir(root, ".", func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := fs.ReadFile(root, at)
		out["/"+at] = string(content)
		return err
	}))
	return out
}

func (w *world) setEtc(dir string, files map[string]string) {
	w.t.Helper()
	root := filepath.Join(w.root, dir)
	require.NoError(w.t, os.RemoveAll(root))
	require.NoError(w.t, os.MkdirAll(root, 0o755))
	for at, content := range files {
		require.NoError(w.t, os.MkdirAll(filepath.Dir(root+at), 0o755))
		require.NoError(w.t, os.WriteFile(root+at, []byte(content), 0o644))
	}
}

// switchEtc is what ostree does with /etc: a deployment that has booted before has its own, and a
// new one gets the image's with what differs in the old one from its image.
func (m *machine) switchEtc(next *host.Deployment) {
	if next.Checkout == "" || next.Checkout == m.booted.Checkout {
		return
	}
	w := m.w
	had, image := w.etc("etc"), w.etc("usr/etc")
	m.etcs[m.booted.Checkout] = had
	fresh := w.etc(filepath.Join(deploymentsDir, next.Checkout, "usr/etc"))
	w.setEtc("usr/etc", fresh)
	merged, isBack := m.etcs[next.Checkout]
	if !isBack {
		merged = maps.Clone(fresh)
		for at, content := range had {
			if was, has := image[at]; !has || was != content {
				merged[at] = content
			}
		}
		for at := range image {
			if _, has := had[at]; !has {
				delete(merged, at)
			}
		}
	}
	w.setEtc("etc", merged)
}

// liveWorld is a node that has image and configuration 1. Image 2 and 4 differ from it in /etc/motd
// and /etc/app.conf, 3 in a program too.
func liveWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, rendered("rendered-4", "4"), rendered("rendered-5", "1"), newPolicies())
	w.machine.checkouts, w.machine.etcs = map[string]string{}, map[string]map[string]string{}
	plain := rendered("rendered-2", "2")
	require.NoError(t, w.Delete(t.Context(), plain))
	require.NoError(t, w.Create(t.Context(), plain))
	w.image("1", map[string]string{"usr/etc/motd": "hello", "usr/etc/gone.conf": "x", "usr/bin/sh": "sh"})
	w.image("2", map[string]string{"usr/etc/motd": "two", "usr/etc/app.d/app.conf": "two", "usr/bin/sh": "sh"})
	w.image("3", map[string]string{"usr/etc/motd": "three", "usr/bin/sh": "other"})
	w.image("4", map[string]string{"usr/etc/motd": "hello", "usr/etc/gone.conf": "x", "usr/etc/app.d/app.conf": "four", "usr/bin/sh": "sh"})
	require.NoError(t, w.Create(t.Context(), rendered("rendered-3", "3")))
	w.machine.booted.Checkout = "1f.0"
	for _, dir := range []string{"etc", "usr/etc"} {
		w.setEtc(dir, w.etc(filepath.Join(deploymentsDir, "1f.0/usr/etc")))
	}
	w.target("rendered-1", "1")
	w.settle()
	w.writes, w.effects = 0, nil
	return w
}

func newPolicies() *operatorv1.MachineConfiguration {
	c := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	none := []openshiftv1.NodeDisruptionPolicySpecAction{{Type: openshiftv1.NoneSpecAction}}
	c.Spec.NodeDisruptionPolicy.Files = []openshiftv1.NodeDisruptionPolicySpecFile{
		{Path: "/etc/motd", Actions: none},
		{Path: "/etc/gone.conf", Actions: none},
		{Path: "/etc/app.d", Actions: []openshiftv1.NodeDisruptionPolicySpecAction{
			{Type: openshiftv1.ReloadSpecAction, Reload: &openshiftv1.ReloadService{ServiceName: "app.service"}},
		}},
	}
	return c
}

// policy changes what is done about /etc/motd.
func (w *world) policy(kind openshiftv1.NodeDisruptionPolicySpecActionType) {
	w.t.Helper()
	c := &operatorv1.MachineConfiguration{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: "cluster"}, c))
	c.Spec.NodeDisruptionPolicy.Files[0].Actions[0].Type = kind
	require.NoError(w.t, w.Update(w.t.Context(), c))
}

// has says in a line what the node has, and its files.
func (w *world) has() string {
	a := w.node().Annotations
	files := w.etc("etc")
	return fmt.Sprintf("%s %s %s boots=%d booted=%s next=%s motd=%s app=%s gone=%s state=%s", a[mcfgv1.AnnotationCurrentConfig],
		mcfgv1.ImageDigestFormat(a[mcfgv1.AnnotationCurrentImage]).Short()[:1], a[mcfgv1.AnnotationState], w.machine.boots,
		w.machine.booted.Digest[7:8], w.machine.next().Digest[7:8], files["/motd"], files["/app.d/app.conf"], files["/gone.conf"], w.get("var/lib/app/name"))
}

const (
	liveSecond   = "rendered-2 2 Done boots=0 booted=1 next=2 motd=two app=two gone= state=rendered-2"
	bootedSecond = "rendered-2 2 Done boots=1 booted=2 next=2 motd=two app=two gone= state=rendered-2"
	liveFirst    = "rendered-1 1 Done boots=0 booted=1 next=1 motd=hello app= gone=x state=rendered-1"
	liveFourth   = "rendered-4 4 Done boots=0 booted=1 next=4 motd=hello app=four gone=x state=rendered-4"
)

func reloads(w *world) int {
	return len(slices.DeleteFunc(slices.Clone(w.effects), func(e string) bool { return e != "systemctl reload -- app.service" }))
}

func TestAConfigurationIsChangedLive(t *testing.T) {
	t.Parallel()
	w := liveWorld(t)
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	w.settle()
	assert.Equal(t, mcfgv1.NodeChangeLive, w.node().Annotations[mcfgv1.AnnotationStagedChange])
	assert.Equal(t, "True Staged the node will neither be drained nor reboot", w.conditions()[mcfgv1.NodeUpdatePrepared])
	assert.Equal(t, "hello", w.get("etc/motd"))
	w.annotate(mcfgv1.AnnotationLiveOnly, "true")
	w.target("rendered-2", "2")
	w.settle()
	assert.Equal(t, liveSecond, w.has())
	assert.Equal(t, 1, reloads(w))
	assert.Empty(t, w.node().Annotations[mcfgv1.AnnotationDesiredDrain])
	assert.Empty(t, w.told(), "live files are no drift")
	assert.Contains(t, w.conditions()[mcfgv1.NodeRebootedNode], "True Updated not needed: ")
	before := w.writes
	w.settle()
	assert.Equal(t, before, w.writes)

	w.put("etc/motd", "edited")
	w.settle()
	assert.Contains(t, w.node().Annotations[mcfgv1.AnnotationReason], "/etc/motd has other content")
	w.put("etc/motd", "two")
	w.settle()

	w.machine.boot() // by someone
	w.start()
	w.settle()
	assert.Equal(t, bootedSecond, w.has(), "the next boot has the same content")
	assert.Equal(t, w.etc("usr/etc"), w.etc("etc"), "and nothing keeps files from later images")
}

func TestLiveChangesFollowOneAnother(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		do   func(*world)
		want string
		// reloads is how often the unit is told.
		reloads int
	}{
		"there and back": {func(w *world) {
			w.target("rendered-1", "1")
		}, liveFirst, 2},
		"another one, which lacks some of the changes": {func(w *world) {
			w.target("rendered-4", "4")
		}, liveFourth, 2},
		"another one, and a boot by someone": {func(w *world) {
			w.target("rendered-4", "4")
			w.settle()
			w.machine.boot()
			w.start()
		}, "rendered-4 4 Done boots=1 booted=4 next=4 motd=hello app=four gone=x state=rendered-4", 2},
		"one that has to reboot": {func(w *world) {
			w.target("rendered-3", "3")
		}, "rendered-3 3 Done boots=1 booted=3 next=3 motd=three app= gone= state=rendered-3", 1},
		"a boot, and back to the host's rollback": {func(w *world) {
			w.machine.boot()
			w.start()
			w.settle()
			w.target("rendered-1", "1")
		}, "rendered-1 1 Done boots=2 booted=1 next=1 motd=hello app= gone=x state=rendered-1", 2},
		"the staged image is lost in a boot by someone": {func(w *world) {
			w.machine.ignores = true
			w.machine.boot()
			w.machine.boots = 0
			w.start()
		}, liveSecond, 1},
		"the next image is staged, and a boot by someone": {func(w *world) {
			w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("4"))
			w.settle()
			w.machine.boot()
			w.start()
			w.target("rendered-4", "4")
		}, "rendered-4 4 Done boots=1 booted=1 next=4 motd=hello app=four gone=x state=rendered-4", 2},
		"a reboot that fails, and back to the live state": {func(w *world) {
			w.machine.ignores = true
			w.target("rendered-3", "3")
			w.settle()
			w.target("rendered-2", "2")
			w.settle()
			w.machine.boots = 0
		}, liveSecond, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := liveWorld(t)
			w.target("rendered-2", "2")
			w.settle()
			require.Equal(t, liveSecond, w.has())
			tt.do(w)
			w.settle()
			assert.Equal(t, tt.want, w.has(), "%v", w.effects)
			assert.Equal(t, tt.reloads, reloads(w), "%v", w.effects)
			assert.Empty(t, w.told())
		})
	}
}

// TestLiveKilledAnywhere ends the agent after each thing that it does, once each.
func TestLiveKilledAnywhere(t *testing.T) {
	t.Parallel()
	effects := 1
	for killAt := 0; killAt <= effects; killAt += stride() {
		w := liveWorld(t)
		w.killAt = killAt
		w.target("rendered-2", "2")
		w.settle()
		require.Equal(t, liveSecond, w.has(), "killed after %d of %v", killAt, w.effects)
		require.NotZero(t, reloads(w))
		w.target("rendered-1", "1")
		w.settle()
		require.Equal(t, liveFirst, w.has(), "killed after %d of %v", killAt, w.effects)
		w.target("rendered-3", "3")
		w.settle()
		require.Contains(t, w.has(), "rendered-3 3 Done boots=1 booted=3 next=3 motd=three", "killed after %d of %v", killAt, w.effects)
		if killAt == 0 {
			effects = len(w.effects)
		}
	}
	assert.Greater(t, effects, 15)
}

func TestAUnitThatDoesNotTakeTheChange(t *testing.T) {
	t.Parallel()
	w := liveWorld(t)
	w.unitError = errors.New("systemctl reload: exit status 1: Job for app.service failed")
	w.target("rendered-2", "2")
	w.settle()
	a := w.node().Annotations
	assert.Equal(t, mcfgv1.NodeStateDegraded, a[mcfgv1.AnnotationState])
	assert.Contains(t, a[mcfgv1.AnnotationReason], "Job for app.service failed")
	assert.Contains(t, w.conditions()[mcfgv1.NodeUpdated], "False UpdateFailed the change was applied without a reboot, but: ")
	assert.Zero(t, w.machine.boots)
	w.unitError = nil
	w.target("rendered-1", "1") // as the controller does, which rolls it back
	w.settle()
	assert.Equal(t, liveFirst, w.has())
	assert.Equal(t, []string{nodestest.Pinned("2")}, w.machine.pulls, "the way back pulls nothing")
}

func TestALiveChangeWithADrain(t *testing.T) {
	t.Parallel()
	w := liveWorld(t)
	w.policy(openshiftv1.DrainSpecAction)
	w.target("rendered-2", "2")
	w.settle()
	assert.Equal(t, liveSecond, w.has())
	assert.True(t, strings.HasPrefix(w.node().Annotations[mcfgv1.AnnotationDesiredDrain], mcfgv1.UncordonPrefix), "it was drained")
}

func TestANodeThatMayNotGoAway(t *testing.T) {
	t.Parallel()
	w := liveWorld(t)
	w.annotate(mcfgv1.AnnotationStageImage, nodestest.Pinned("2"))
	w.settle()
	w.policy(openshiftv1.RebootSpecAction) // after the agent has said that it need not
	w.annotate(mcfgv1.AnnotationLiveOnly, "true")
	w.target("rendered-2", "2")
	w.settle()
	a := w.node().Annotations
	assert.Equal(t, []string{mcfgv1.NodeChangeReboot, "", mcfgv1.NodeStateDone}, []string{
		a[mcfgv1.AnnotationStagedChange], a[mcfgv1.AnnotationDesiredDrain], a[mcfgv1.AnnotationState],
	})
	assert.Equal(t, "True Staged the node will reboot: /etc/motd: its policy is Reboot", w.conditions()[mcfgv1.NodeUpdatePrepared])
	w.annotate(mcfgv1.AnnotationLiveOnly, "")
	w.settle()
	assert.Equal(t, bootedSecond, w.has())
}

func TestAnEditedFileIsNotOverwrittenLive(t *testing.T) {
	t.Parallel()
	w := liveWorld(t)
	w.put("etc/motd", "mine")
	w.target("rendered-2", "2")
	w.settle()
	assert.Contains(t, w.has(), "boots=1 booted=2 next=2 motd=mine")
}

// policyFor says what is done about the node's own file and SSH keys.
func (w *world) policyFor(actions ...openshiftv1.NodeDisruptionPolicySpecAction) {
	w.t.Helper()
	c := &operatorv1.MachineConfiguration{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: "cluster"}, c))
	c.Spec.NodeDisruptionPolicy.Files = append(c.Spec.NodeDisruptionPolicy.Files, openshiftv1.NodeDisruptionPolicySpecFile{Path: "/var/lib/app", Actions: actions})
	require.NoError(w.t, w.Update(w.t.Context(), c))
}

// TestNodeStateFollowsItsPolicy changes a file below /var, and the image stays.
func TestNodeStateFollowsItsPolicy(t *testing.T) {
	t.Parallel()
	reload := openshiftv1.NodeDisruptionPolicySpecAction{
		Type: openshiftv1.ReloadSpecAction, Reload: &openshiftv1.ReloadService{ServiceName: "app.service"},
	}
	for name, tt := range map[string]struct {
		actions        []openshiftv1.NodeDisruptionPolicySpecAction
		boots, reloads int
		isDrained      bool
	}{
		"no policy":         {},
		"a unit is told":    {[]openshiftv1.NodeDisruptionPolicySpecAction{reload}, 0, 1, false},
		"drained and told":  {[]openshiftv1.NodeDisruptionPolicySpecAction{{Type: openshiftv1.DrainSpecAction}, reload}, 0, 1, true},
		"the node reboots":  {[]openshiftv1.NodeDisruptionPolicySpecAction{{Type: openshiftv1.RebootSpecAction}}, 1, 0, true},
		"nothing is needed": {[]openshiftv1.NodeDisruptionPolicySpecAction{{Type: openshiftv1.NoneSpecAction}}, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for killAt := 0; killAt < 12; killAt += 3 * stride() {
				w := liveWorld(t)
				if tt.actions != nil {
					w.policyFor(tt.actions...)
				}
				w.killAt = killAt
				w.target("rendered-5", "1")
				w.settle()
				assert.Equal(t, fmt.Sprintf("rendered-5 1 Done boots=%d booted=1 next=1 motd=hello app= gone=x state=rendered-5", tt.boots), w.has(), "killed after %d", killAt)
				assert.Equal(t, tt.isDrained, w.node().Annotations[mcfgv1.AnnotationDesiredDrain] != "")
				if told := reloads(w); killAt == 0 {
					assert.Equal(t, tt.reloads, told, "%v", w.effects)
				} else {
					assert.GreaterOrEqual(t, told, tt.reloads, "killed after %d of %v", killAt, w.effects)
				}
				w.target("rendered-1", "1")
				w.settle()
				assert.Equal(t, fmt.Sprintf("rendered-1 1 Done boots=%d booted=1 next=1 motd=hello app= gone=x state=rendered-1", 2*tt.boots), w.has(), "and back")
			}
		})
	}
}

// TestUnitsAreToldOnce changes the image and a file below /var in one.
func TestUnitsAreToldOnce(t *testing.T) {
	t.Parallel()
	w := liveWorld(t)
	w.policyFor(openshiftv1.NodeDisruptionPolicySpecAction{
		Type: openshiftv1.RestartSpecAction, Restart: &openshiftv1.RestartService{ServiceName: "db.service"},
	})
	w.target("rendered-2", "2")
	w.settle()
	assert.Equal(t, liveSecond, w.has())
	told := slices.DeleteFunc(slices.Clone(w.effects), func(e string) bool { return e != "systemctl restart -- db.service" })
	assert.Len(t, told, 1, "%v", w.effects)
}
