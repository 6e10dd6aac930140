package objects

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/builder/wanted/order"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/status"
)

// IsRebuild reports whether someone asked for a build that takes nothing from before.
func IsRebuild(build *mcfgv1.MachineOSBuild) bool {
	return build.Asked().Cause == mcfgv1.BuildInputRebuildRequested
}

// IsRebuilt reports whether the content that one build has made was rebuilt later, or is to be by
// the build with a UID. It has the same key and our statement, and whoever may push can give it the
// tag again.
func IsRebuilt(ctx context.Context, from client.Reader, content order.Content, repository string, uid types.UID, invocation string) (bool, error) { //nolint:revive // each is used once, and belongs to the call
	var list mcfgv1.MachineOSBuildList
	if err := from.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing MachineOSBuilds: %w", err)
	}
	var made, rebuilt metav1.Time
	for i := range list.Items {
		o := &list.Items[i]
		if provenance.InvocationOf(o) == invocation {
			made = o.CreationTimestamp
		}
		if IsRebuild(o) && (o.UID == uid || hasMadeContent(o, content, repository)) && rebuilt.Before(&o.CreationTimestamp) {
			rebuilt = o.CreationTimestamp
		}
	}
	return made.Before(&rebuilt), nil
}

// hasMadeContent reports whether an image of a build is on content of the same key, under the same
// tag.
func hasMadeContent(o *mcfgv1.MachineOSBuild, content order.Content, repository string) bool {
	return PushesTo(repository, o) && o.Status.DigestedImagePushSpec != "" &&
		slices.Contains([]string{o.Status.ContentKey, o.Status.BuildKey}, content.Key)
}

// EndOf is when a build ended, as text that sorts.
func EndOf(b *mcfgv1.MachineOSBuild) string {
	if b.Status.BuildEnd == nil {
		return ""
	}
	return Stamp(*b.Status.BuildEnd)
}

// Stamp is a time as text that sorts.
func Stamp(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// ContentOf are the keys of a build, and whether it has content.
func ContentOf(build *mcfgv1.MachineOSBuild) (plan.Keys, bool) {
	record, err := plan.RecordOf(build)
	if err != nil || record == nil {
		return plan.Keys{}, false
	}
	return record.Keys, record.Inputs.HasContent()
}

// FinalOf are the reason and message of how a build ended.
func FinalOf(conditions []metav1.Condition) (reason, message string) {
	for _, t := range status.FinalBuildTypes() {
		if c := status.Find(conditions, t); c != nil && c.Status == metav1.ConditionTrue {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

// PushesTo reports whether a build pushes its image to a repository.
func PushesTo(repository string, b *mcfgv1.MachineOSBuild) bool {
	its, err := credentials.Repository(b.Spec.RenderedImagePushSpec)
	return err == nil && its == repository
}

// ContentBuild is the build that makes a content now.
func ContentBuild(builds []mcfgv1.MachineOSBuild, content string) string {
	all := make([]plan.Existing, len(builds))
	for i := range builds {
		all[i] = Existing(&builds[i])
	}
	return plan.ContentBuild(all, content)
}

// Existing is what matters of a build.
func Existing(b *mcfgv1.MachineOSBuild) plan.Existing {
	asked := b.Asked()
	out := plan.Existing{
		Name: b.Name, Created: b.CreationTimestamp.Time, Image: string(b.Status.DigestedImagePushSpec),
		Access: asked.RegistryAccess, Deleting: !b.DeletionTimestamp.IsZero(),
	}
	_, out.Rebuild = b.Annotations[mcfgv1.AnnotationRebuild]
	if !IsRebuild(b) { // that takes nothing from before, and others need not wait for it
		out.Content = asked.ContentImage
	}
	out.Timeout, _ = time.ParseDuration(b.Annotations[mcfgv1.AnnotationBuildTimeout]) // none is zero
	if b.Status.BuildEnd != nil {
		out.Ended = b.Status.BuildEnd.Time
	}
	out.Stage = status.BuildStageOf(b.Status.Conditions)
	if out.Stage.IsFinal() {
		out.Reason, out.Message = FinalOf(b.Status.Conditions)
	} else if c := status.Find(b.Status.Conditions, status.Reconciling); c != nil {
		out.Reason, out.Message = c.Reason, c.Message
	}
	return out
}

// Named is the build of a name; nil where there is none.
func Named(builds []*mcfgv1.MachineOSBuild, name string) *mcfgv1.MachineOSBuild {
	for _, b := range builds {
		if b.Name == name {
			return b
		}
	}
	return nil
}

// IsInterruptedOrDeleted reports whether someone has interrupted a build, or is deleting it.
func IsInterruptedOrDeleted(build *mcfgv1.MachineOSBuild) bool {
	return !build.DeletionTimestamp.IsZero() || status.BuildStageOf(build.Status.Conditions) == mcfgv1.BuildStageInterrupted
}
