package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/view"
)

// migration is what a user asks of the stream of a pool.
type migration struct {
	clusterBuild

	check  bool
	dryRun bool
}

func newMigrateCommand() *cobra.Command {
	m := &migration{clusterBuild: clusterBuild{clock: clock.RealClock{}, wait: true}}
	cmd := &cobra.Command{
		Use:   "migrate POOL --to STREAM",
		Short: "Move a pool to another stream, or say what is in the way of that",
		Long: `With --check the cluster tries the move, and the report is printed; it exits with 3 if something is in the way. Without, it moves the
pool there, if such a trial found nothing in the way: it sets spec.osImageStream of the MachineConfigPool, and the controller builds
and rolls out. There is no way back to an older major version.

It takes the right to patch machineconfigpools, and for --check to patch machineosconfigs and to read the report, a ConfigMap of
Layerwright's namespace.`,
		Example: `  # What would change, and what is in the way?
  layerwright migrate worker --to rhel10-coreos --check

  # Move there, and follow it
  layerwright migrate worker --to rhel10-coreos
  layerwright status worker --watch`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m.pool = args[0]
			if err := m.checkFlags(); err != nil {
				return err
			}
			return m.cluster.run(func(from client.Client) error {
				m.open(cmd, from)
				return m.run(cmd.Context())
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&m.stream, "to", "", "stream that the pool moves to, one of those of \"layerwright streams\"")
	flags.BoolVar(&m.check, "check", false, "try it, and change nothing of the pool")
	flags.DurationVar(&m.timeout, "timeout", 0, "with --check: how long to wait for the report at most")
	flags.BoolVar(&m.dryRun, "dry-run", false, "have the API server check the change, and make none")
	m.cluster = newClusterFlags(cmd)
	cmd.ValidArgsFunction = m.cluster.completePools
	return cmd
}

func (m *migration) checkFlags() error {
	switch {
	case m.stream == "":
		return errors.New("no stream: name the one that the pool moves to with --to")
	case m.check && m.dryRun:
		return errors.New("--check changes nothing of the pool already: give --dry-run without it")
	case m.timeout < 0 || m.timeout > 0 && !m.check:
		return errors.New("--timeout goes with --check, and must be positive")
	}
	return nil
}

func (m *migration) run(ctx context.Context) error {
	pool, err := getPool(ctx, m.from, m.pool)
	if err != nil {
		return err
	}
	if err := m.checkStream(ctx); err != nil {
		return err
	}
	config, err := m.config(ctx)
	if err != nil {
		return err
	}
	if m.check {
		return m.try(ctx, config)
	}
	if pool.Spec.OSImageStream.Name == m.stream {
		return m.say(fmt.Sprintf("it follows stream %s already", m.stream))
	}
	if err := m.judgeTrial(config); err != nil {
		return err
	}
	return m.move(ctx, pool)
}

// checkStream refuses a stream that pools can't name.
func (m *migration) checkStream(ctx context.Context) error {
	streams := &mcfgv1.OSImageStream{}
	err := m.from.Get(ctx, client.ObjectKey{Name: mcfgv1.OSImageStreamName}, streams)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading OSImageStream %s: %w", mcfgv1.OSImageStreamName, err)
	}
	var known []string
	for i := range streams.Status.AvailableStreams {
		known = append(known, streams.Status.AvailableStreams[i].Name)
	}
	if slices.Contains(known, m.stream) {
		return nil
	}
	for i := range streams.Status.UnusableStreams {
		if u := &streams.Status.UnusableStreams[i]; u.Name == m.stream {
			return fmt.Errorf("stream %q can't be used: %s: %s", m.stream, u.Reason, u.Message)
		}
	}
	if len(known) == 0 {
		return fmt.Errorf("there is no stream %q: OSImageStream %s has none", m.stream, mcfgv1.OSImageStreamName)
	}
	return fmt.Errorf("there is no stream %q; the streams are %s", m.stream, strings.Join(known, ", "))
}

// judgeTrial refuses a move that was not tried, or that something is in the way of.
func (m *migration) judgeTrial(config *mcfgv1.MachineOSConfig) error {
	again := fmt.Sprintf("layerwright migrate %s --to %s --check", m.pool, m.stream)
	t := trialOf(config, m.stream)
	switch {
	case t == nil || t.State != mcfgv1.StreamTrialReported:
		return &endError{exitHeld, fmt.Sprintf("there is no report of what the move of pool %s to stream %s would change: first run %s", m.pool, m.stream, again)}
	case t.BlockerCount > 0:
		return &endError{exitHeld, fmt.Sprintf("pool %s can't move to stream %s yet: %d blockers: %s; %s has the whole report", m.pool, m.stream, t.BlockerCount, strings.Join(t.Blockers, "; "), again)}
	}
	return nil
}

// move sets the stream of the pool.
func (m *migration) move(ctx context.Context, pool *mcfgv1.MachineConfigPool) error {
	before := pool.Status.OSImageStream.Name
	change := &poolChange{Spec: map[string]any{"osImageStream": map[string]string{"name": m.stream}}}
	change.Metadata.ResourceVersion = pool.ResourceVersion
	if err := change.apply(ctx, m.from, pool, m.dryRun); err != nil {
		return err
	}
	if m.dryRun {
		return m.say(fmt.Sprintf("would follow stream %s; nothing was changed, since this was a dry run", m.stream))
	}
	if err := m.say(fmt.Sprintf("follows stream %s; layerwright status %s --watch shows how far it is", m.stream, m.pool)); err != nil || before == "" {
		return err
	}
	return m.say(fmt.Sprintf("layerwright migrate %s --to %s goes back, unless that is of an older major version", m.pool, before))
}

func (m *migration) say(text string) error {
	_, err := io.WriteString(m.out, "pool "+m.pool+": "+view.Visible(text)+"\n")
	return err
}
