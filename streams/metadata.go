package streams

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// About is what is known of a stream beside its images.
type About struct {
	// Lifecycle is how far it is in its life; its dates may say more.
	Lifecycle mcfgv1.StreamLifecycle `json:"lifecycle,omitempty"`
	// DeprecationDate and EndOfLifeDate are days such as 2027-05-31.
	DeprecationDate string `json:"deprecationDate,omitempty"`
	EndOfLifeDate   string `json:"endOfLifeDate,omitempty"`
	// NodeLabels are those of nodes that run it.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
}

// over is what is known where a says more than b.
func (a About) over(b About) About {
	if a.Lifecycle != "" {
		b.Lifecycle = a.Lifecycle
	}
	if a.DeprecationDate != "" {
		b.DeprecationDate = a.DeprecationDate
	}
	if a.EndOfLifeDate != "" {
		b.EndOfLifeDate = a.EndOfLifeDate
	}
	if len(a.NodeLabels) > 0 {
		b.NodeLabels = a.NodeLabels
	}
	return b
}

// Knowledge is what is known of streams, by name.
type Knowledge map[string]About

// Add adds what another place knows, which wins field by field.
func (k Knowledge) Add(more Knowledge) {
	for name, about := range more {
		k[name] = about.over(k[name])
	}
}

// KnowledgeOfSpec is what spec.images says about streams.
func KnowledgeOfSpec(images []mcfgv1.OSImageStreamImages) Knowledge {
	k := Knowledge{}
	for i := range images {
		k[images[i].Name] = About{images[i].Lifecycle, images[i].DeprecationDate, images[i].EndOfLifeDate, images[i].NodeLabels}
	}
	return k
}

// Describe adds to streams what is known of them, as it is on a day: lifecycle is the effective
// one.
func Describe(available []mcfgv1.OSImageStreamSet, k Knowledge, today time.Time) {
	for i := range available {
		stream, about := &available[i], k[available[i].Name]
		stream.DeprecationDate, stream.EndOfLifeDate, stream.NodeLabels = about.DeprecationDate, about.EndOfLifeDate, maps.Clone(about.NodeLabels)
		stream.Lifecycle = Effective(about.Lifecycle, about.DeprecationDate, about.EndOfLifeDate, today)
	}
}

// Labels of nodes that stream metadata may set.
const (
	nodeLabelID      = "node.openshift.io/ID"
	nodeLabelVersion = "node.openshift.io/version_ID"
)

// ParseLifecycle reads a ConfigMap with what an administrator knows of streams: each key is a
// stream, its value an About in YAML. What can't be read is a problem, and the rest counts.
func ParseLifecycle(configMap string, data map[string]string) (Knowledge, []Problem) {
	k := Knowledge{}
	var problems []Problem
	for _, name := range slices.Sorted(maps.Keys(data)) {
		about := About{}
		err := yaml.UnmarshalStrict([]byte(data[name]), &about)
		if err == nil {
			err = about.check()
		}
		if err != nil {
			problems = append(problems, invalid("ConfigMap %q: key %q: %s", configMap, name, firstLine(err)))
			continue
		}
		k[name] = about
	}
	return k, problems
}

// check tells what no OSImageStream can say.
func (a About) check() error {
	if known := []mcfgv1.StreamLifecycle{"", mcfgv1.StreamSupported, mcfgv1.StreamDeprecated, mcfgv1.StreamEndOfLife}; !slices.Contains(known, a.Lifecycle) {
		return fmt.Errorf("lifecycle %q: must be Supported, Deprecated or EndOfLife", a.Lifecycle)
	}
	for _, day := range []string{a.DeprecationDate, a.EndOfLifeDate} {
		if _, err := ParseDay(day); day != "" && err != nil {
			return fmt.Errorf("date %q: must be a day such as 2027-05-31", day)
		}
	}
	for label := range a.NodeLabels {
		if label != nodeLabelID && label != nodeLabelVersion {
			return fmt.Errorf("node label %q: only %s and %s are allowed", label, nodeLabelID, nodeLabelVersion)
		}
	}
	return nil
}

// Keys of a ConfigMap with CoreOS stream metadata.
const (
	keyStream  = "stream"
	keyStreams = "streams"
)

// streamFile is the part of CoreOS stream metadata that says something about the stream itself.
type streamFile struct {
	Stream   string `json:"stream"`
	Metadata struct {
		EOL    bool            `json:"eol"`
		Labels json.RawMessage `json:"labels"`
	} `json:"metadata"`
}

// ParseStreamMetadata reads CoreOS stream metadata: of one stream, below the key "stream", which
// names its stream itself, and of several by name, below "streams". The flag eol is EndOfLife, and
// the labels node.openshift.io/ID and node.openshift.io/version_ID are those of nodes; all others
// are left out. Other keys mean nothing here.
func ParseStreamMetadata(configMap string, data map[string]string) (Knowledge, []Problem) {
	k := Knowledge{}
	var problems []Problem
	note := func(key string, err error) {
		problems = append(problems, invalid("ConfigMap %q: key %q: %s", configMap, key, firstLine(err)))
	}
	if text := data[keyStream]; text != "" {
		var file streamFile
		if err := json.Unmarshal([]byte(text), &file); err != nil {
			note(keyStream, err)
		} else if about, err := file.about(); err != nil {
			note(keyStream, err)
		} else {
			k[file.Stream] = about
		}
	}
	var files map[string]streamFile
	if text := data[keyStreams]; text != "" {
		if err := json.Unmarshal([]byte(text), &files); err != nil {
			note(keyStreams, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := files[name]
		about, err := file.about()
		if err != nil {
			note(keyStreams, fmt.Errorf("stream %q: %w", name, err))
			continue
		}
		k[name] = about
	}
	return k, problems
}

func (f *streamFile) about() (About, error) {
	about := About{}
	if f.Metadata.EOL {
		about.Lifecycle = mcfgv1.StreamEndOfLife
	}
	labels, err := parseLabels(f.Metadata.Labels)
	for _, name := range []string{nodeLabelID, nodeLabelVersion} {
		if value, ok := labels[name]; ok {
			if about.NodeLabels == nil {
				about.NodeLabels = map[string]string{}
			}
			about.NodeLabels[name] = value
		}
	}
	return about, err
}

// parseLabels reads labels. The design says that they are an array, and not of what: "key=value"
// and objects with key or name, and value, are read, and so is an object.
func parseLabels(raw json.RawMessage) (map[string]string, error) {
	labels := map[string]string{}
	if len(raw) == 0 || string(raw) == "null" {
		return labels, nil
	}
	if json.Unmarshal(raw, &labels) == nil {
		return labels, nil
	}
	var texts []string
	if json.Unmarshal(raw, &texts) == nil {
		for _, text := range texts {
			key, value, _ := strings.Cut(text, "=")
			labels[key] = value
		}
		return labels, nil
	}
	var objects []struct{ Key, Name, Value string }
	if json.Unmarshal(raw, &objects) != nil {
		return nil, fmt.Errorf("metadata.labels: must be an array of key=value")
	}
	for _, o := range objects {
		if o.Key == "" {
			o.Key = o.Name
		}
		labels[o.Key] = o.Value
	}
	return labels, nil
}

// invalid means that a ConfigMap makes no sense.
func invalid(format string, args ...any) Problem {
	return Problem{mcfgv1.StreamConfigMapInvalid, mcfgv1.ReasonInvalid, fmt.Sprintf(format, args...)}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
