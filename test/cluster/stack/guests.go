package stack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/stack/deploy"
	"github.com/layerwright/layerwright/test/cluster/stack/guests"
	"github.com/layerwright/layerwright/test/fixtures"
	"github.com/layerwright/layerwright/test/guest"
)

const (
	// GuestLabel marks nodes that are virtual machines, and is the key of their taint.
	GuestLabel = guests.Label
	// GuestStream is what they boot first.
	GuestStream = guests.Stream
)

// GuestName is the name of the nth guest, and of its node.
func GuestName(n int) string { return guests.Name(n) }

// HasGuests reports whether the cluster, if there is one, has nodes that are virtual machines.
func (s *Stack) HasGuests() (bool, error) {
	st, err := s.load()
	if missing := (*NotFoundError)(nil); errors.As(err, &missing) {
		return false, nil
	}
	return err == nil && st.Guests > 0, err
}

// Guest controls a guest of the cluster by its node's name.
func (s *Stack) Guest(name string) *guest.Control { return guest.Connect(guests.Dir(s.dir, name)) }

// GuestConsole is the file with what a guest prints.
func (s *Stack) GuestConsole(name string) string {
	return filepath.Join(s.dir, "logs", name+"-console.log")
}

// guestTimeout bounds what guests do together, which takes minutes where they are emulated.
const guestTimeout = 30 * time.Minute

func patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, guestTimeout, fmt.Errorf("the guests were not ready after %s", guestTimeout))
}

// startGuests makes the disks of guests that have none, boots all that do not run, waits until they
// are Ready, and brings them the agent's image.
func (u *up) startGuests(ctx context.Context, images *deploy.Images) error {
	all := guests.Nodes(u.dir, u.state.Guests)
	before := map[string]string{} // the boots of guests that are about to boot again
	for _, g := range all {
		has, err := g.HasDisk()
		if err != nil {
			return err
		}
		if !has {
			if err := u.makeGuest(ctx, g, images); err != nil {
				return fmt.Errorf("making %s: %w", g.Name, err)
			}
		}
		spec, err := g.Spec(u.program, u.GuestConsole(g.Name), gatewayName)
		if err != nil {
			return err
		}
		boot, err := u.bootOf(ctx, g.Name)
		if err != nil {
			return err
		}
		started, err := u.manager.Ensure(ctx, spec)
		if err != nil {
			return err
		}
		if started {
			before[g.Name] = boot
		}
	}
	ctx, cancel := patient(ctx)
	defer cancel()
	for _, g := range all {
		if err := u.awaitGuest(ctx, g.Name, before[g.Name]); err != nil {
			return fmt.Errorf("%w; `cluster logs %s-console` shows its console", err, g.Name)
		}
	}
	return u.loadGuests(ctx, images.Agent)
}

// bootOf is the boot that a node has last told of; empty where it never joined.
func (u *up) bootOf(ctx context.Context, name string) (string, error) {
	node, err := u.clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return node.Status.NodeInfo.BootID, nil
}

// awaitGuest waits for the node after another boot than before, and labels it, which a kubelet may
// not do itself. The label of workers is for people to give: guests boot other images than nodes
// that are processes, which one pool can't have.
func (u *up) awaitGuest(ctx context.Context, name, before string) error {
	if err := await.NodeReadyAgain(ctx, u.clients, name, before); err != nil {
		return err
	}
	labelled := corev1ac.Node(name).WithLabels(map[string]string{GuestLabel: ""})
	_, err := u.clients.CoreV1().Nodes().Apply(ctx, labelled, metav1.ApplyOptions{FieldManager: deploy.FieldManager, Force: true})
	return err
}

// loadGuests brings guests the image of agents, by the cluster's registry. Only the disk of a new
// guest has it already.
func (u *up) loadGuests(ctx context.Context, agent deploy.Image) error {
	if agent.Tag == "" { // the controller is left out
		return nil
	}
	ctx, cancel := patient(ctx)
	defer cancel()
	registry, err := u.Registry(ctx)
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(agent.Tag, ":")
	from := registry.Host + "/playground/layerwright-agent:" + tag
	if err := agent.Push(ctx, from, registry.Options(ctx, "push")...); err != nil {
		return fmt.Errorf("pushing the agent's image: %w", err)
	}
	account := u.state.account("pull")
	for _, g := range guests.Nodes(u.dir, u.state.Guests) {
		if _, err := u.manager.Pid(g.Name); err != nil {
			return fmt.Errorf("%s does not run: `cluster up` starts it: %w", g.Name, err)
		}
		if _, err := u.Guest(g.Name).Run(ctx, guests.LoadScript(agent.Tag, from, account.Name+":"+account.Password)); err != nil {
			return fmt.Errorf("bringing the agent's image to %s: %w", g.Name, err)
		}
	}
	return nil
}

// makeGuest makes a guest's disk, and what it is made of as far as the cache does not have it.
func (u *up) makeGuest(ctx context.Context, g guests.Node, images *deploy.Images) error {
	maker, err := u.guestFixtures(ctx, []fixtures.Stream{GuestStream}, func(string, ...any) {})
	if err != nil {
		return err
	}
	registry, err := u.Registry(ctx)
	if err != nil {
		return err
	}
	disk, base, err := guests.Install(ctx, maker, u.cache, registry.Host+"/"+FixturesPath, registry.Options(ctx, "push")...)
	if err != nil {
		return err
	}
	of := guests.Identity{PKI: u.pki, Registry: registry.Host, Agent: images.Agent.Archive}
	if of.Pause, err = deploy.EnsurePause(u.bin.pause); err != nil {
		return err
	}
	if of.Login, err = u.pullLogin(u.state); err != nil {
		return err
	}
	return g.Make(ctx, disk, base, of)
}

// guestFixtures makes base images that boot, with the programs that the cluster's own nodes run.
func (s *Stack) guestFixtures(ctx context.Context, streams []fixtures.Stream, report func(string, ...any)) (*fixtures.Maker, error) {
	programs, err := guests.Programs(ctx, s.tools, s.repository, filepath.Join(s.dir, "guests", "bin"))
	if err != nil {
		return nil, err
	}
	return s.fixtures(streams, report, programs...)
}
