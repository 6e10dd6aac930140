package demo

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
)

// workerLabel is what the pool selects nodes by.
const workerLabel = "node-role.kubernetes.io/worker"

// rollOut brings an image to the nodes, and shows what becomes of a file that is edited on one.
func (s *story) rollOut(ctx context.Context) error {
	s.told++
	s.Printer.Note("\n%d. The nodes boot it: staged everywhere, then one after the other", s.told)
	if !s.HasHosts {
		s.Printer.Note("  Left out: no node here can be updated. In a cluster that the demo makes as root, or after `%s up --hosts`, they can.", s.Program)
		return nil
	}
	if err := s.toInstalledImage(ctx); err != nil {
		return err
	}
	if err := s.edit(ctx, fmt.Sprintf("Welcome to a worker that was rolled out, changed at %s.\n", time.Now().Format("15:04:05"))); err != nil {
		return err
	}
	names, err := s.letGo(ctx)
	if err != nil {
		return err
	}
	err = s.Printer.Do("MachineConfigPool "+poolName+": rollout", func(step *progress.Step) error {
		if s.Guest == "" {
			return s.arrive(ctx, step, len(names))
		}
		s.patience = guestPatience
		return meanwhile(ctx, func(ctx context.Context) error { return s.showConsole(ctx, step) },
			func(ctx context.Context) error { return s.arrive(ctx, step, len(names)) })
	})
	if err != nil {
		return err
	}
	return s.showDrift(ctx, names[len(names)-1])
}

// toInstalledImage has the pool go on with the OS image that the hosts were installed with.
func (s *story) toInstalledImage(ctx context.Context) error {
	s.content = ""
	installed, why := fixtures.Tiny, "The hosts were installed with the small OS image, and the images go on from that one: no node waits for a large pull."
	if s.Guest != "" {
		installed, why = fixtures.Bootable, "The virtual machine was installed with an OS image that has a kernel and systemd, and the images go on from that one."
	}
	if s.kind != installed {
		s.Printer.Note("  %s", why)
		if err := s.push(ctx, installed); err != nil {
			return err
		}
	}
	return s.applyConfig(ctx)
}

// applyConfig applies the MachineOSConfig as it is now.
func (s *story) applyConfig(ctx context.Context) error {
	text, err := write(s.dir, configFile, s.facts())
	if err != nil {
		return err
	}
	s.Printer.Note("  $ kubectl apply --server-side --force-conflicts -f %s", s.short(filepath.Join(s.dir, configFile)))
	_, err = apply(ctx, s.dynamic, text)
	return err
}

// letGo puts the nodes into the pool, and has its image rolled out. It returns their names.
func (s *story) letGo(ctx context.Context) (names []string, err error) {
	s.Printer.Note("\n  So far images were built and pushed only. Now the nodes join the pool, and postBuildStrategy goes:")
	s.Printer.Note("  $ kubectl label nodes %s %s=", cmp.Or(s.Guest, "--all"), workerLabel)
	nodes, err := s.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		label := "null"
		if s.takesPart(&nodes.Items[i]) {
			names, label = append(names, nodes.Items[i].Name), `""`
		}
		patch := []byte(`{"metadata":{"labels":{"` + workerLabel + `":` + label + `}}}`)
		if _, err := s.clients.CoreV1().Nodes().Patch(ctx, nodes.Items[i].Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return nil, fmt.Errorf("labeling node %s: %w", nodes.Items[i].Name, err)
		}
	}
	s.rollsOut = true
	return names, s.applyConfig(ctx)
}

// takesPart reports whether a node gets the image of the last act: nodes that are processes and
// nodes that are virtual machines have different OS images.
func (s *story) takesPart(node *corev1.Node) bool {
	if s.Guest != "" {
		return node.Name == s.Guest
	}
	_, isGuest := node.Labels[stack.GuestLabel]
	return !isGuest
}

// arrive waits until the pool says that all nodes run the image, and shows each of them meanwhile.
func (s *story) arrive(ctx context.Context, step *progress.Step, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	board := &board{image: s.last, away: map[string]time.Time{}, was: map[string]time.Duration{}}
	show := func(object any) {
		if node, ok := object.(*corev1.Node); ok {
			step.Line(node.Name, board.see(node, time.Now()))
		}
	}
	factory := informers.NewSharedInformerFactory(s.clients, 0)
	handler := cache.ResourceEventHandlerFuncs{AddFunc: show, UpdateFunc: func(_, now any) { show(now) }}
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(handler); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	factory.Start(watching.Done())
	defer factory.Shutdown()
	defer stop()
	return s.awaitPool(ctx, "all nodes to run the image", func(pool *mcfgv1.MachineConfigPool) (bool, string) {
		rollout := pool.Status.Rollout
		if rollout == nil {
			return false, "no rollout yet"
		}
		step.Detail("%s", rollout.Summary)
		isAll := string(rollout.TargetImagePullSpec) == s.last && int(pool.Status.MachineCount) == nodes
		return isAll && meta.IsStatusConditionTrue(pool.GetConditions(), string(mcfgv1.PoolUpdated)), rollout.Summary
	})
}

// awaitPool waits for something of the pool.
func (s *story) awaitPool(ctx context.Context, what string, reached func(*mcfgv1.MachineConfigPool) (bool, string)) error {
	target := await.Target{Client: s.objects.RESTClient(), Resource: "machineconfigpools", Name: poolName}
	return s.explain(ctx, what, await.Object(ctx, target, &mcfgv1.MachineConfigPool{}, reached))
}

// board knows how long nodes are away.
type board struct {
	image string
	// away is since when a node has been, and was how long one has.
	away map[string]time.Time
	was  map[string]time.Duration
}

// see is the line of a node as it is now.
func (b *board) see(node *corev1.Node, now time.Time) string {
	begin, isAway := b.away[node.Name]
	switch here := isHere(node); {
	case !here && !isAway:
		b.away[node.Name] = now
	case here && isAway:
		b.was[node.Name] = now.Sub(begin)
		delete(b.away, node.Name)
	}
	text := phase(node, b.image)
	if was := b.was[node.Name]; was > 0 && text == phaseUpdated {
		text += ", was away for " + took(was)
	}
	return text
}

// isHere reports whether pods can come to a node.
func isHere(node *corev1.Node) bool {
	return !node.Spec.Unschedulable && node.Annotations[mcfgv1.AnnotationState] != mcfgv1.NodeStateRebooting && isReady(node)
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// phaseUpdated is the phase of a node that runs the image.
const phaseUpdated = "runs the image"

// phase is how far a node is with an image.
func phase(node *corev1.Node, image string) string {
	a := node.Annotations
	isDraining := strings.HasPrefix(a[mcfgv1.AnnotationDesiredDrain], mcfgv1.DrainPrefix)
	switch {
	case a[mcfgv1.AnnotationState] == mcfgv1.NodeStateDegraded:
		return "degraded: " + a[mcfgv1.AnnotationReason]
	case a[mcfgv1.AnnotationCurrentImage] == image && isHere(node):
		return phaseUpdated
	case a[mcfgv1.AnnotationCurrentImage] == image:
		return "has booted the image, lets pods return"
	case a[mcfgv1.AnnotationDesiredImage] != image && a[mcfgv1.AnnotationStageImage] != image:
		return "is not asked yet"
	case a[mcfgv1.AnnotationDesiredImage] != image && a[mcfgv1.AnnotationStagedImage] != image:
		return "stages the image"
	case a[mcfgv1.AnnotationDesiredImage] != image:
		return "holds the image, waits for a slot"
	case a[mcfgv1.AnnotationState] == mcfgv1.NodeStateRebooting:
		return "reboots"
	case isDraining && a[mcfgv1.AnnotationLastAppliedDrain] != a[mcfgv1.AnnotationDesiredDrain]:
		return "drains"
	default:
		return "may change"
	}
}

// showDrift edits a file of the image on a node, and shows who says so.
func (s *story) showDrift(ctx context.Context, node string) error {
	s.Printer.Note("\n  Someone edits a file of the image, on %s:", node)
	if err := s.onHost(ctx, node, "echo edited by hand > "+motdPath); err != nil {
		return err
	}
	if err := s.awaitDegraded(ctx, true); err != nil {
		return err
	}
	found, err := s.clients.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.Printer.Note("  reported    %s", found.Annotations[mcfgv1.AnnotationReason])
	s.Printer.Note("\n  The image's own file puts an end to it:")
	if err := s.onHost(ctx, node, "cp -a /usr"+motdPath+" "+motdPath); err != nil {
		return err
	}
	return s.awaitDegraded(ctx, false)
}

// onHost runs a command in the root of a node.
func (s *story) onHost(ctx context.Context, node, command string) error {
	s.Printer.Note("  %s # %s", node, command)
	if node == s.Guest {
		ctx, cancel := context.WithTimeout(ctx, s.patience)
		defer cancel()
		_, err := s.Stack.Guest(node).Run(ctx, command)
		return err
	}
	cmd, err := s.Stack.HostCommand(ctx, node, command)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %q on %s: %w: %s", command, node, err, out)
	}
	return nil
}

func (s *story) awaitDegraded(ctx context.Context, is bool) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	title := map[bool]string{true: "Degraded", false: "not Degraded any more"}[is]
	return s.Printer.Do("MachineConfigPool "+poolName+": "+title, func(*progress.Step) error {
		return s.awaitPool(ctx, "the pool to notice", func(pool *mcfgv1.MachineConfigPool) (bool, string) {
			conditions := pool.GetConditions()
			return meta.IsStatusConditionTrue(conditions, string(mcfgv1.PoolDegraded)) == is, summary(conditions)
		})
	})
}
