package streams

import (
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// ConditionTypes are the types of all problems, in the order in which they explain what is wrong.
func ConditionTypes() []string {
	return []string{
		mcfgv1.StreamDefaultNotAvailable, mcfgv1.StreamReleaseImageUnreadable, mcfgv1.StreamConfigMapInvalid, mcfgv1.StreamImagesUnreadable,
		mcfgv1.StreamDigestsInvalid, mcfgv1.StreamNamesInvalid, mcfgv1.StreamImageLabelsContradictory, mcfgv1.StreamDuplicates,
		mcfgv1.StreamTooMany, mcfgv1.StreamImageLabelsMissing, mcfgv1.StreamIncomplete, mcfgv1.StreamSourcesConflict,
	}
}

// IsNotice reports whether a problem of the type is only to be known: what sources have in excess,
// or say twice, hurts no stream that a pool can name.
func IsNotice(conditionType string) bool {
	return slices.Contains([]string{mcfgv1.StreamImageLabelsMissing, mcfgv1.StreamIncomplete, mcfgv1.StreamSourcesConflict}, conditionType)
}

// Summarize joins the problems of one type, so that each type comes once, in the order of
// ConditionTypes.
func Summarize(problems []Problem) []Problem {
	var out []Problem
	for _, conditionType := range ConditionTypes() {
		var messages []string
		joined := Problem{Type: conditionType}
		for _, p := range problems {
			if p.Type != conditionType || slices.Contains(messages, p.Message) {
				continue
			}
			if joined.Reason == "" || p.Reason == mcfgv1.ReasonRetrying {
				joined.Reason = p.Reason
			}
			messages = append(messages, p.Message)
		}
		if len(messages) > 0 {
			joined.Message = strings.Join(messages, "; ")
			out = append(out, joined)
		}
	}
	return out
}

// Changes says for people how streams changed, or is empty.
func Changes(before, after []mcfgv1.OSImageStreamSet) string {
	was, is := map[string]mcfgv1.OSImageStreamSet{}, map[string]mcfgv1.OSImageStreamSet{}
	for _, stream := range before {
		was[stream.Name] = stream
	}
	var changes []string
	for _, stream := range after {
		is[stream.Name] = stream
		old, had := was[stream.Name]
		switch {
		case !had:
			changes = append(changes, stream.Name+" is new")
		case old.OSImage != stream.OSImage:
			changes = append(changes, stream.Name+" has OS image "+stream.OSImage.Short()+" instead of "+old.OSImage.Short())
		case old.OSExtensionsImage != stream.OSExtensionsImage:
			changes = append(changes, stream.Name+" has another extensions image")
		case old.Lifecycle != stream.Lifecycle:
			changes = append(changes, stream.Name+" is "+string(stream.Lifecycle))
		}
	}
	for _, stream := range before {
		if _, has := is[stream.Name]; !has {
			changes = append(changes, stream.Name+" is gone")
		}
	}
	return strings.Join(changes, "; ")
}
