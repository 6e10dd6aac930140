package plan

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

const (
	// UnknownVersion is the version of an image that nothing says the version of, such as the one
	// of the installation.
	UnknownVersion = "unknown"
	// maxHistory is how many entries a BootImageHistory may have.
	maxHistory = 50
	// fightAfter is how often an image is set before what puts another one back is taken for a
	// second writer.
	fightAfter = 3
	// fightWithin is how far the first of these times may be in the past, and so how long nothing
	// is written after the last.
	fightWithin = time.Hour
)

// pinned is the entry of the history that an administrator named, by version or image; the newest
// of several.
func pinned(name string, history []mcfgv1alpha1.BootImageHistoryDetail) (*mcfgv1alpha1.BootImageHistoryDetail, *Problem) {
	for i := len(history) - 1; i >= 0; i-- {
		if entry := &history[i]; entry.Image != "" && (entry.BootImageVersion == name || entry.Image == name) {
			return entry, nil
		}
	}
	return nil, failed(ReasonUnknownPin, "its BootImageHistory has no entry with version or image %q to go back to", name)
}

// isFight reports whether the last entries of the history are the same image again and again.
func isFight(history []mcfgv1alpha1.BootImageHistoryDetail, image string, now time.Time) bool {
	if len(history) < fightAfter {
		return false
	}
	last := history[len(history)-fightAfter:]
	for _, entry := range last {
		if entry.Image != image || now.Sub(entry.UpdateTime.Time) > fightWithin {
			return false
		}
	}
	return true
}

// Record is the history after an update to an image of a version of the ConfigMap. The first entry
// is the image that was there before, so that there is a way back; for Decision.IsFirst the only
// one.
func Record(
	history []mcfgv1alpha1.BootImageHistoryDetail, d *Decision, configMap int64, now metav1.Time,
) []mcfgv1alpha1.BootImageHistoryDetail {
	out := append([]mcfgv1alpha1.BootImageHistoryDetail(nil), history...)
	if len(out) == 0 {
		version := d.CurrentVersion
		if version == "" {
			version = UnknownVersion
		}
		out = append(out, mcfgv1alpha1.BootImageHistoryDetail{UpdateTime: now, BootImageVersion: version, Image: d.Current})
	}
	if d.IsFirst {
		return out
	}
	if d.Reason == ReasonPinned { // it is from the history itself
		configMap = 0
	}
	out = append(out, mcfgv1alpha1.BootImageHistoryDetail{
		UpdateTime: now, BootImageVersion: d.Wanted.Version, ConfigMapGeneration: configMap, Stream: d.Stream, Image: d.Wanted.ID,
	})
	return out[max(0, len(out)-maxHistory):]
}
