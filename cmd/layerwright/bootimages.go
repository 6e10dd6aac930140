//go:build !client

package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/registry/wire"
	"github.com/layerwright/layerwright/rollout/bootimages"
	"github.com/layerwright/layerwright/rollout/bootimages/ec2"
	"github.com/layerwright/layerwright/rollout/bootimages/vsphere"
	"github.com/layerwright/layerwright/rollout/disruption"
)

// bootImageOptions are the settings of what updates boot images.
type bootImageOptions struct {
	enabled      bool
	soak         time.Duration
	degradeAfter time.Duration
}

func defaultBootImageOptions() bootImageOptions {
	return bootImageOptions{enabled: true, soak: bootimages.DefaultSoak, degradeAfter: bootimages.DefaultDegradeAfter}
}

func (o *bootImageOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.enabled, "boot-images", o.enabled,
		"update boot images as the MachineConfiguration asks; turn it off where something else does")
	flags.DurationVar(&o.soak, "boot-image-canary-time", o.soak,
		"how long the first machine resource with a new boot image is watched alone; a machine of it that joins ends it sooner, 0 does without")
	flags.DurationVar(&o.degradeAfter, "boot-image-degrade-after", o.degradeAfter,
		"how long a machine resource may fail to get its boot image before the MachineConfiguration says that it is degraded")
}

func (o *bootImageOptions) check() error {
	for name, value := range map[string]time.Duration{"boot-image-canary-time": o.soak, "boot-image-degrade-after": o.degradeAfter} {
		if value < 0 {
			return fmt.Errorf("--%s %s: must not be negative", name, value)
		}
	}
	return nil
}

// ec2Timeout bounds one question to a cloud.
const ec2Timeout = 30 * time.Second

// addBootImages adds what updates boot images.
func addBootImages(options *controllerOptions) part {
	o := options.bootImages
	return func(manager ctrl.Manager) error {
		if !o.enabled {
			return nil
		}
		counts := metrics.NewBootImages()
		if err := register("the metrics of boot images", counts); err != nil {
			return err
		}
		return bootimages.SetupWithManager(manager, bootimages.Options{
			Namespace: options.namespace, Soak: o.soak, DegradeAfter: o.degradeAfter, Metrics: counts,
			Policies: disruption.Merge,
			Owners:   ec2.New(manager.GetAPIReader(), &http.Client{Timeout: ec2Timeout}),
			Importer: vsphere.New(manager.GetAPIReader(), &http.Client{ // an import has a deadline of its own
				Transport: &wire.Progress{Next: http.DefaultTransport, Clock: clock.RealClock{}},
			}),
		})
	}
}
