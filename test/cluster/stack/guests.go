package stack

import (
	"context"
	"fmt"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

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

// Guest controls a guest of the cluster by its node's name.
func (s *Stack) Guest(name string) *guest.Control { return guest.Connect(guests.Dir(s.dir, name)) }

// GuestConsole is the file with what a guest prints.
func (s *Stack) GuestConsole(name string) string {
	return filepath.Join(s.dir, "logs", name+"-console.log")
}

// startGuests makes the disks of guests that have none, boots all that do not run, and waits until
// they are Ready.
func (u *up) startGuests(ctx context.Context, images *deploy.Images) error {
	all := guests.Nodes(u.dir, u.state.Guests)
	if len(all) == 0 {
		return nil
	}
	if err := guest.Check(); err != nil {
		return err
	}
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
		if _, err := u.manager.Ensure(ctx, spec); err != nil {
			return err
		}
	}
	for _, g := range all {
		if err := u.awaitGuest(ctx, g.Name); err != nil {
			return fmt.Errorf("%w; `cluster logs %s-console` shows its console", err, g.Name)
		}
	}
	return nil
}

// awaitGuest waits for the node and labels it, which a kubelet may not do itself.
func (u *up) awaitGuest(ctx context.Context, name string) error {
	if err := await.NodeReady(ctx, u.clients, name); err != nil {
		return err
	}
	labelled := corev1ac.Node(name).WithLabels(map[string]string{GuestLabel: "", "node-role.kubernetes.io/worker": ""})
	_, err := u.clients.CoreV1().Nodes().Apply(ctx, labelled, metav1.ApplyOptions{FieldManager: deploy.FieldManager, Force: true})
	return err
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
	return fixtures.New(fixtures.Options{
		CacheDir: s.cache, Streams: streams, Programs: programs,
		Progress: fixtures.ProgressFunc(func(e fixtures.Event) { report("%s", e) }),
	})
}
