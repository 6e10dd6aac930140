package streams

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func TestParseStreamMetadata(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"node.openshift.io/ID": "rhcos", "node.openshift.io/version_ID": "9.6"}
	tests := map[string]struct {
		data     map[string]string
		want     Knowledge
		problems []string
	}{
		"none": {want: Knowledge{}},
		"one stream, with labels as texts": {
			data: map[string]string{"stream": `{"stream":"rhel-9","metadata":{"eol":true,"labels":["node.openshift.io/ID=rhcos","node.openshift.io/version_ID=9.6","other=1"]},"architectures":{}}`},
			want: Knowledge{"rhel-9": {Lifecycle: mcfgv1.StreamEndOfLife, NodeLabels: labels}},
		},
		"several streams, with labels as objects": {
			data: map[string]string{"streams": `{"rhel-9":{"metadata":{"labels":[{"key":"node.openshift.io/ID","value":"rhcos"},{"name":"node.openshift.io/version_ID","value":"9.6"}]}},"rhel-10":{"metadata":{"labels":{"node.openshift.io/ID":"rhcos"}}}}`},
			want: Knowledge{"rhel-9": {NodeLabels: labels}, "rhel-10": {NodeLabels: map[string]string{"node.openshift.io/ID": "rhcos"}}},
		},
		"as they are today": {
			data: map[string]string{"stream": `{"stream":"rhel-9.6","metadata":{"last-modified":"2026-01-01T00:00:00Z"}}`}, want: Knowledge{"rhel-9.6": {}},
		},
		"nonsense": {
			data: map[string]string{"stream": "{", "streams": "[]"}, want: Knowledge{},
			problems: []string{
				`ConfigMap "coreos-bootimages": key "stream": unexpected end of JSON input`,
				`ConfigMap "coreos-bootimages": key "streams": json: cannot unmarshal array into Go value of type map[string]streams.streamFile`,
			},
		},
		"labels that are none": {
			data: map[string]string{"streams": `{"a":{"metadata":{"labels":7}},"b":{"metadata":{"eol":true}}}`}, want: Knowledge{"b": {Lifecycle: mcfgv1.StreamEndOfLife}},
			problems: []string{`ConfigMap "coreos-bootimages": key "streams": stream "a": metadata.labels: must be an array of key=value`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problems := ParseStreamMetadata("coreos-bootimages", tt.data)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.problems, messages(problems))
		})
	}
}

func messages(problems []Problem) (out []string) {
	for _, p := range problems {
		out = append(out, p.Message)
	}
	return out
}

func TestParseLifecycle(t *testing.T) {
	t.Parallel()
	got, problems := ParseLifecycle("osimagestream-lifecycle", map[string]string{
		"rhel-9":  "lifecycle: Deprecated\ndeprecationDate: \"2027-05-31\"\nendOfLifeDate: 2028-05-31\nnodeLabels: {node.openshift.io/ID: rhcos}\n",
		"rhel-8":  "lifecycle: Dead",
		"rhel-7":  "endOfLifeDate: soon",
		"rhel-6":  "endOfLive: 2020-01-01",
		"rhel-5":  "nodeLabels: {vendor: me}",
		"rhel-10": "",
	})
	assert.Equal(t, Knowledge{
		"rhel-9": {mcfgv1.StreamDeprecated, "2027-05-31", "2028-05-31", map[string]string{"node.openshift.io/ID": "rhcos"}}, "rhel-10": {},
	}, got)
	assert.Equal(t, []string{
		`ConfigMap "osimagestream-lifecycle": key "rhel-5": node label "vendor": only node.openshift.io/ID and node.openshift.io/version_ID are allowed`,
		`ConfigMap "osimagestream-lifecycle": key "rhel-6": error unmarshaling JSON: while decoding JSON: json: unknown field "endOfLive"`,
		`ConfigMap "osimagestream-lifecycle": key "rhel-7": date "soon": must be a day such as 2027-05-31`,
		`ConfigMap "osimagestream-lifecycle": key "rhel-8": lifecycle "Dead": must be Supported, Deprecated or EndOfLife`,
	}, messages(problems))
}

func TestDescribeLifecycle(t *testing.T) {
	t.Parallel()
	k := Knowledge{"rhel-9": {Lifecycle: mcfgv1.StreamEndOfLife, NodeLabels: map[string]string{"node.openshift.io/ID": "rhcos"}}}
	k.Add(Knowledge{"rhel-9": {Lifecycle: mcfgv1.StreamSupported, EndOfLifeDate: "2028-05-31"}})
	k.Add(KnowledgeOfSpec([]mcfgv1.OSImageStreamImages{{Name: "rhel-9", DeprecationDate: "2027-05-31"}}))
	streams := []mcfgv1.OSImageStreamSet{had("rhel-9"), had("rhel-10")}
	Describe(streams, k, time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC))
	assert.Equal(t, mcfgv1.StreamDeprecated, streams[0].Lifecycle, "an administrator said that it is supported, and until when")
	assert.Equal(t, "2027-05-31", streams[0].DeprecationDate)
	assert.Equal(t, "2028-05-31", streams[0].EndOfLifeDate)
	assert.Equal(t, map[string]string{"node.openshift.io/ID": "rhcos"}, streams[0].NodeLabels)
	assert.Equal(t, mcfgv1.StreamSupported, streams[1].Lifecycle)
}
