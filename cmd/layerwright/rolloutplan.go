package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/forecast"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/view"
)

// rolloutPlan is what a user asks of a plan.
type rolloutPlan struct {
	asked    bool
	accepted []string
	format   command.Choice
}

// plans reports whether a plan is made, which a resume with accepted issues depends on too.
func (r *rolloutRequest) plans() bool { return r.plan.asked || r.resume && r.plan.accepted != nil }

func (r *rolloutRequest) checkPlan() error {
	if r.pause || r.undo || r.to != "" || r.windows {
		return errors.New("--plan is of what is asked for now, and goes with --resume alone: change the pool first, while it is paused")
	}
	if r.resume && r.plan.format.Value == "json" {
		return errors.New("--resume says what it does as text: give --plan -o json alone first")
	}
	for _, name := range r.plan.accepted {
		if !slices.Contains(view.Issues(), name) {
			return fmt.Errorf("--accept: there is no issue %q; the issues are %s", name, strings.Join(view.Issues(), ", "))
		}
	}
	return nil
}

// foresee prints the plan. It fails where issues are left that were not accepted.
func (r *rolloutRequest) foresee(ctx context.Context, cluster clusterFlags, from client.Reader, out io.Writer) error {
	config, err := cluster.impatient()
	if err != nil {
		return err
	}
	versions, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	server, err := versions.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the version of the API server: %w", err)
	}
	made, err := r.forecast(ctx, from, &forecast.Input{APIServer: server.GitVersion, Resuming: r.resume, Now: clock.RealClock{}.Now()}, *cluster.Namespace)
	if err != nil {
		return err
	}
	return r.judge(made, out)
}

// judge prints a plan, and fails where issues are left.
func (r *rolloutRequest) judge(made *forecast.Forecast, out io.Writer) error {
	left := made.Accept(r.plan.accepted)
	write := made.Text
	if r.plan.format.Value == "json" {
		write = func(w io.Writer) error { return printJSON(w, made) }
	}
	if err := write(out); err != nil {
		return err
	}
	if len(left) == 0 {
		return nil
	}
	text := fmt.Sprintf("pool %s: correct these, or name them with --accept: %s", r.pool, strings.Join(left, ","))
	if r.resume {
		text = fmt.Sprintf("pool %s was not resumed: correct these, or name them with --accept: %s", r.pool, strings.Join(left, ","))
	}
	return &endError{exitHeld, text}
}

// forecast reads the cluster. A plan that lacks something would say that nothing is in the way.
func (r *rolloutRequest) forecast(ctx context.Context, from client.Reader, in *forecast.Input, namespace string) (*forecast.Forecast, error) {
	read, err := survey.Read(ctx, from, namespace)
	if err != nil {
		return nil, err
	}
	pool, err := poolNamed(read.Objects.Pools, r.pool)
	if err != nil {
		return nil, err
	}
	if len(read.Notes) > 0 {
		return nil, errors.New("a plan needs all of the cluster's objects: " + strings.Join(read.Notes, "; "))
	}
	in.Pool, in.Objects = pool, &read.Objects
	r.planned = in.Pool
	if name := in.Pool.Spec.Configuration.Name; name != "" {
		in.Config = &mcfgv1.MachineConfig{}
		if err := from.Get(ctx, client.ObjectKey{Name: name}, in.Config); apierrors.IsNotFound(err) {
			in.Config = nil
		} else if err != nil {
			return nil, fmt.Errorf("reading MachineConfig %s: %w", name, err)
		}
	}
	made := forecast.Of(in)
	if !made.Drains() {
		return made, nil
	}
	budgets, err := survey.Budgets(ctx, from)
	if err != nil {
		return nil, err
	}
	workload := made.Workload(budgets)
	if err := survey.EachPod(ctx, from, workload.Add); err != nil {
		return nil, err
	}
	workload.End()
	return made, nil
}
