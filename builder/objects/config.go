package objects

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/internal/attempts"
	"github.com/layerwright/layerwright/internal/status"
)

// Where a MachineOSConfig says nothing (spec.buildRetryLimit, spec.buildTimeout).
const (
	defaultRetries = 3
	defaultTimeout = 2 * time.Hour
)

// BuildTimeout is spec.buildTimeout, if it is set.
func BuildTimeout(config *mcfgv1.MachineOSConfig) (time.Duration, bool) {
	limit, err := time.ParseDuration(config.Spec.BuildTimeout)
	return limit, err == nil && limit > 0
}

// SettingsOf are what an administrator may change while a build waits or runs.
func SettingsOf(config *mcfgv1.MachineOSConfig) order.Settings {
	s := order.Settings{
		Resources: config.Spec.BuildResources, Placement: config.Spec.BuildPlacement,
		Retries: ContentRetries(config), Timeout: TimeoutOf(config),
	}
	if own := config.Spec.ImageBuilder.Pipeline; own != nil {
		s.Pipeline = own.Name
	}
	return s
}

// ContentRetries is spec.buildRetryLimit of builds in pods, with its default.
func ContentRetries(config *mcfgv1.MachineOSConfig) int {
	if limit := config.Spec.BuildRetryLimit; limit != nil {
		return int(*limit)
	}
	return defaultRetries
}

// RetriesOf is how often the build of a name was made again in a row since it failed.
func RetriesOf(config *mcfgv1.MachineOSConfig, build string) int {
	times, _ := strings.CutPrefix(config.Annotations[mcfgv1.AnnotationBuildRetries], build+" ")
	return attempts.Read(times) // what is of another build is no number
}

// AttemptsOf are those of a build that failed for a reason that may pass, and how many may.
func AttemptsOf(build *mcfgv1.MachineOSBuild, retries int) attempts.Count {
	return attempts.Count{Failed: attempts.Written(build, mcfgv1.AnnotationFailedAttempts), Retries: retries}
}

// NoteRetry counts that a build is made again.
func NoteRetry(config *mcfgv1.MachineOSConfig, build string) {
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, mcfgv1.AnnotationBuildRetries, fmt.Sprintf("%s %d", build, RetriesOf(config, build)+1))
}

// TimeoutOf is how long an attempt to build content may take.
func TimeoutOf(config *mcfgv1.MachineOSConfig) time.Duration {
	if limit, ok := BuildTimeout(config); ok {
		return limit
	}
	return defaultTimeout
}

// RetentionOf is how many builds of a MachineOSConfig are kept.
func RetentionOf(config *mcfgv1.MachineOSConfig) plan.Retention {
	keep := plan.DefaultRetention
	if spec := config.Spec.Retention; spec != nil {
		keep.Successful = int(ptr.Deref(spec.SuccessfulBuilds, int32(keep.Successful))) //nolint:gosec // a small default
		keep.Failed = int(ptr.Deref(spec.FailedBuilds, int32(keep.Failed)))             //nolint:gosec // a small default
	}
	return keep
}

// PoolFacts are what matters of the pool. A pool whose nodes failed gets new images all the same:
// the next one may be the cure.
func PoolFacts(pool *mcfgv1.MachineConfigPool) plan.PoolFacts {
	if pool == nil || !pool.DeletionTimestamp.IsZero() {
		return plan.PoolFacts{}
	}
	facts := plan.PoolFacts{Exists: true, Config: pool.Spec.Configuration.Name}
	if c := status.Find(pool.GetConditions(), string(mcfgv1.PoolRenderDegraded)); c != nil && c.Status == metav1.ConditionTrue {
		facts.Degraded = c.Message
	}
	return facts
}

// WantsRecheck reports whether an annotation asks to check images again or to rebuild.
func WantsRecheck(config *mcfgv1.MachineOSConfig) bool {
	_, asked := config.Annotations[mcfgv1.AnnotationCheckImages]
	return asked || WantsRebuild(config)
}

// WantsRebuild reports whether someone asks for a build that takes nothing from before.
func WantsRebuild(config *mcfgv1.MachineOSConfig) bool {
	for _, key := range RebuildAnnotations() {
		if _, has := config.Annotations[key]; has {
			return true
		}
	}
	return false
}

// RebuildAnnotations are the two spellings of the request for a rebuild.
func RebuildAnnotations() []string {
	return []string{mcfgv1.AnnotationRebuild, mcfgv1.AnnotationRebuildImage}
}
