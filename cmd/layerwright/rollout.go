//go:build !client

package main

import (
	"cmp"
	"fmt"
	"time"
	_ "time/tzdata" // maintenance windows name time zones, and the controller's image has no files of them

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/rollout"
	"github.com/layerwright/layerwright/rollout/drain"
	"github.com/layerwright/layerwright/rollout/pullsecrets"
	"github.com/layerwright/layerwright/rollout/silences"
)

// rolloutOptions are the settings of what moves nodes.
type rolloutOptions struct {
	enabled                 bool
	nodeName                string
	podName                 string
	drainGracePeriod        time.Duration
	drainTimeout            time.Duration
	drainTerminationTimeout time.Duration
	agentPullSecrets        string
}

// podsOwnGracePeriod is the value of --drain-grace-period that leaves it to each pod.
const podsOwnGracePeriod = time.Duration(-1)

func defaultRolloutOptions() rolloutOptions {
	return rolloutOptions{
		enabled: true, drainGracePeriod: podsOwnGracePeriod,
		drainTimeout: drain.DefaultTimeout, drainTerminationTimeout: drain.DefaultTerminationTimeout,
	}
}

func (o *rolloutOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.enabled, "rollout", o.enabled,
		"move nodes to the configuration and image of their pool; turn it off where something else does")
	flags.StringVar(&o.nodeName, "node-name", o.nodeName,
		"node that this process runs on, which is updated last (default $"+nodeNameEnv+")")
	flags.StringVar(&o.podName, "pod-name", o.podName,
		"pod that this process runs in, which is only evicted while another node can run it (default $"+podNameEnv+")")
	flags.DurationVar(&o.drainGracePeriod, "drain-grace-period", o.drainGracePeriod,
		"how long pods that are evicted may take to end; negative for what each pod says itself")
	flags.DurationVar(&o.drainTimeout, "drain-timeout", o.drainTimeout,
		"after how long a blocked drain is reported as overdue; it goes on")
	flags.DurationVar(&o.drainTerminationTimeout, "drain-termination-timeout", o.drainTerminationTimeout,
		"after how long a pod that outlives its grace period is reported")
	flags.StringVar(&o.agentPullSecrets, "agent-pull-secrets", o.agentPullSecrets,
		"Role that lets Layerwright's node agents read the pull secrets that MachineOSConfigs name for nodes; the controller keeps it up to date; empty for none")
}

func (o *rolloutOptions) complete(getenv func(string) string) error {
	o.nodeName = cmp.Or(o.nodeName, getenv(nodeNameEnv))
	o.podName = cmp.Or(o.podName, getenv(podNameEnv))
	for name, value := range map[string]time.Duration{
		"drain-timeout": o.drainTimeout, "drain-termination-timeout": o.drainTerminationTimeout,
	} {
		if value <= 0 {
			return fmt.Errorf("--%s %s: must be positive", name, value)
		}
	}
	return nil
}

// addRollout adds what moves nodes.
func addRollout(options *controllerOptions) part {
	o := options.rollout
	return func(manager ctrl.Manager) error {
		if !o.enabled {
			return nil
		}
		if o.agentPullSecrets != "" {
			if err := pullsecrets.New(options.namespace, o.agentPullSecrets, options.signing.secret).SetupWithManager(manager); err != nil {
				return err
			}
		}
		moves, drains := metrics.NewRollouts(), metrics.NewDrains()
		if err := register("the metrics of rollouts", moves); err != nil {
			return err
		}
		if err := register("the metrics of drains", drains); err != nil {
			return err
		}
		assigned, err := usersAssigned(manager)
		if err != nil {
			return err
		}
		keeper := silences.New(manager.GetAPIReader(), options.namespace)
		if err := manager.Add(keeper); err != nil {
			return fmt.Errorf("setting up silences: %w", err)
		}
		if err := rollout.New(rollout.Options{
			OwnNode: o.nodeName, Namespace: options.namespace, SigningSecret: options.signing.secret, UsersAssigned: assigned, Silencer: keeper, Metrics: moves,
			Begin: options.inWork.Note,
		}).SetupWithManager(manager); err != nil {
			return fmt.Errorf("setting up the rollout: %w", err)
		}
		settings := drain.Options{
			Timeout: o.drainTimeout, TerminationTimeout: o.drainTerminationTimeout, Metrics: drains,
			OwnNode: o.nodeName, OwnPod: types.NamespacedName{Namespace: options.namespace, Name: o.podName},
		}
		if o.drainGracePeriod >= 0 {
			settings.GracePeriod = &o.drainGracePeriod
		}
		return drain.New(settings).SetupWithManager(manager)
	}
}
