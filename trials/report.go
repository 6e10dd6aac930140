package trials

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/objects"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/streams/compare"
)

// Keys of the report's ConfigMap.
const (
	reportText = "report.txt"
	reportJSON = "report.json"
	// maxReport is what fits into a ConfigMap, in bytes, with room for its metadata.
	maxReport = 1000 << 10
)

// publishReport writes the report, and says it in short.
func (r *Reconciler) publishReport(ctx context.Context, s *scope, report *compare.Report) (*mcfgv1.StreamTrial, error) {
	document, err := json.Marshal(report)
	if err != nil {
		return nil, fmt.Errorf("writing the report: %w", err)
	}
	data := map[string]string{reportText: report.Text()}
	if len(data[reportText])+len(document) <= maxReport {
		data[reportJSON] = string(document)
	}
	if len(data[reportText]) > maxReport {
		data[reportText] = strings.ToValidUTF8(data[reportText][:maxReport], "") + "\n(cut)\n"
	}
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.options.Namespace, Name: names.StreamTrial(s.config.Name),
			Labels: objects.ValidLabels(map[string]string{mcfgv1.LabelMachineOSConfig: s.config.Name, mcfgv1.LabelTargetMachineConfigPool: s.pool.Name}),
		},
		Data: data,
	}
	if err := controllerutil.SetControllerReference(s.config, configMap, r.options.Client.Scheme()); err != nil {
		return nil, fmt.Errorf("setting the owner of ConfigMap %q: %w", configMap.Name, err)
	}
	if err := r.replace(ctx, configMap); err != nil {
		return nil, fmt.Errorf("writing the report into ConfigMap %q: %w", configMap.Name, err)
	}
	now := metav1.NewTime(r.options.Clock.Now()).Rfc3339Copy()
	result := &mcfgv1.StreamTrial{
		Stream: s.stream, State: mcfgv1.StreamTrialReported, Message: report.Summary(), ImagePullSpec: mcfgv1.ImageDigestFormat(report.TrialImage),
		BlockerCount: int32(len(report.Blockers)), WarningCount: int32(len(report.Warnings)), //nolint:gosec // a few
		Report:         &mcfgv1.StreamTrialReport{Namespace: configMap.Namespace, Name: configMap.Name},
		CompletionTime: &now, Inputs: s.inputs,
	}
	if p := report.Packages; p != nil {
		result.Packages = &mcfgv1.StreamTrialPackages{
			Added: int32(len(p.Added)), Removed: int32(len(p.Removed)), //nolint:gosec // some thousands
			Upgraded: int32(len(p.Upgraded)), Downgraded: int32(len(p.Downgraded)), //nolint:gosec // some thousands
		}
	}
	const maxListed = 32
	for _, blocker := range report.Blockers[:min(len(report.Blockers), maxListed)] {
		result.Blockers = append(result.Blockers, blocker.Short())
	}
	return result, nil
}

// replace writes an object in place of the one of its name. Changing objects of its kind takes a
// right that nothing else here needs.
func (r *Reconciler) replace(ctx context.Context, configMap *corev1.ConfigMap) error {
	err := r.options.Client.Create(ctx, configMap.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := client.IgnoreNotFound(r.options.Client.Delete(ctx, configMap.DeepCopy())); err != nil {
		return err
	}
	return r.options.Client.Create(ctx, configMap.DeepCopy())
}
