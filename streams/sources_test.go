package streams

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// pinned is an image by a digest that differs with its name.
func pinned(name string) string {
	return fmt.Sprintf("quay.io/os/%s@sha256:%064x", name, []byte(name[max(0, len(name)-30):]))[:len("quay.io/os/")+len(name)+len("@sha256:")+64]
}

func osLabels(stream string) map[string]string {
	return map[string]string{mcfgv1.ImageLabelStream: stream, mcfgv1.ImageLabelBootc: "1"}
}

func extLabels(stream string) map[string]string {
	return map[string]string{mcfgv1.ImageLabelStream: stream, mcfgv1.ImageLabelExtensions: "true"}
}

// image is one that was read.
func image(where string, role Role, name string, labels map[string]string) Found {
	return Found{Where: where, Role: role, Image: pinned(name), Pinned: pinned(name), Labels: labels}
}

// release is a release of the images.
func release(images ...Found) Gathered { return Gathered{Source: SourceRelease, Images: images} }

// pair are the two images of a stream.
func pair(stream, version string) []Found {
	return []Found{
		image("tag os", RoleUnknown, stream+version, osLabels(stream)),
		image("tag ext", RoleUnknown, stream+"-ext"+version, extLabels(stream)),
	}
}

// had is a stream that was available.
func had(name string) mcfgv1.OSImageStreamSet {
	return mcfgv1.OSImageStreamSet{Name: name, OSImage: mcfgv1.ImageDigestFormat(pinned(name + "-old")), OSExtensionsImage: mcfgv1.ImageDigestFormat(pinned(name + "-ext-old"))}
}

// typesOf are the condition types of problems.
func typesOf(problems []Problem) []string {
	var types []string
	for _, p := range Summarize(problems) {
		types = append(types, p.Type+" "+p.Reason)
	}
	return types
}

// TestBadInput has every kind of it: each ends in a condition of its own, and what was available
// stays.
func TestBadInput(t *testing.T) {
	t.Parallel()
	many := func(n int) []Found {
		var all []Found
		for i := range n {
			all = append(all, pair(fmt.Sprintf("s-%03d", i), "")...)
		}
		return all
	}
	spec := func(images ...mcfgv1.OSImageStreamImages) Gathered { return FromSpec(images) }
	tests := map[string]struct {
		in       []Gathered
		previous []mcfgv1.OSImageStreamSet
		want     []string // conditions
		message  string
		stays    []string // streams that are what they were
		unusable map[string]string
	}{
		"no label says which stream": {
			in:       []Gathered{release(append(pair("rhel-10", ""), image("tag \"rhel-coreos\"", RoleOS, "a", map[string]string{mcfgv1.ImageLabelBootc: "1"}))...)},
			previous: []mcfgv1.OSImageStreamSet{}, want: []string{"ImageLabelsMissing LabelMissing"},
			message: `tag "rhel-coreos" of the release image: image "` + pinned("a") + `" has no label io.openshift.os.streamclass, and is not used`,
		},
		"no label says what it is": {
			in:       []Gathered{release(image("tag x", RoleUnknown, "a", map[string]string{mcfgv1.ImageLabelStream: "rhel-9"}))},
			previous: []mcfgv1.OSImageStreamSet{had("rhel-9")}, want: []string{"ImageLabelsMissing LabelMissing"},
			message: "has no label containers.bootc or io.openshift.os.extensions", stays: []string{"rhel-9"},
		},
		"labels are missing in the ConfigMap": {
			in:       []Gathered{{Source: SourceConfigMap, Images: []Found{image("key "+KeyOSImage, RoleOS, "a", nil)}}},
			previous: []mcfgv1.OSImageStreamSet{had("rhel-9")}, want: []string{"ImageLabelsMissing LabelMissing"}, stays: []string{"rhel-9"},
		},
		"an OS image that is labelled as extensions": {
			in:       []Gathered{release(image("tag \"rhel-coreos\"", RoleOS, "a", extLabels("rhel-9")), image("tag e", RoleUnknown, "e", extLabels("rhel-9")))},
			previous: []mcfgv1.OSImageStreamSet{had("rhel-9")}, want: []string{"ImageLabelsContradictory LabelsContradictory"},
			message: `is labelled as extensions image, and named as OS image`, stays: []string{"rhel-9"},
		},
		"the same where there was none": {
			in:   []Gathered{release(image("tag \"rhel-coreos\"", RoleOS, "a", extLabels("rhel-9")))},
			want: []string{"ImageLabelsContradictory LabelsContradictory"}, unusable: map[string]string{"rhel-9": "LabelsContradictory"},
		},
		"an image that says to be both": {
			in: []Gathered{release(image("tag x", RoleUnknown, "a", map[string]string{
				mcfgv1.ImageLabelStream: "rhel-9", mcfgv1.ImageLabelBootc: "true", mcfgv1.ImageLabelExtensions: "true",
			}))},
			previous: []mcfgv1.OSImageStreamSet{had("rhel-9")}, want: []string{"ImageLabelsContradictory LabelsContradictory"}, stays: []string{"rhel-9"},
		},
		"a name in spec that is not the label's": {
			in:   []Gathered{{Source: SourceSpec, OSOnly: true, Images: []Found{{Where: "osImage", Stream: "rhel-9", Role: RoleOS, Image: "i", Pinned: pinned("a"), Labels: osLabels("rhel-10")}}}},
			want: []string{"ImageLabelsContradictory LabelsContradictory"}, previous: []mcfgv1.OSImageStreamSet{had("rhel-9")}, stays: []string{"rhel-9"},
			message: `is of stream "rhel-10" by its label io.openshift.os.streamclass, and named as one of "rhel-9"`,
		},
		"two OS images of a stream": {
			in:       []Gathered{release(append(pair("rhel-9", "a"), image("tag y", RoleUnknown, "rhel-9b", osLabels("rhel-9")))...)},
			previous: []mcfgv1.OSImageStreamSet{had("rhel-9")}, want: []string{"DuplicateStreams DuplicateImages"}, stays: []string{"rhel-9"},
			message: "the one in use before is kept, otherwise the last one is used",
		},
		"more than 100 streams": {
			in: []Gathered{release(many(103)...)}, previous: []mcfgv1.OSImageStreamSet{had("s-102")},
			want: []string{"TooManyStreams TooManyStreams"}, message: "there are 103 streams, and an OSImageStream lists 100: 3 are left out",
			unusable: map[string]string{"s-099": "TooManyStreams", "s-100": "TooManyStreams", "s-101": "TooManyStreams"},
		},
		"a name that is no DNS name": {
			in: []Gathered{release(append(pair("RHEL_9", ""), pair("rhel-10", "")...)...)}, want: []string{"InvalidStreamNames InvalidName"},
			message: `stream "RHEL_9" of the release image: a lowercase RFC 1123 subdomain`, unusable: map[string]string{"RHEL_9": "InvalidName"},
		},
		"a name longer than names are": {
			in: []Gathered{release(pair(strings.Repeat("x", 300), "")...)}, want: []string{"InvalidStreamNames InvalidName"},
			unusable: map[string]string{strings.Repeat("x", 253): "InvalidName"},
		},
		"a digest of a wrong length in spec": {
			in: []Gathered{spec(mcfgv1.OSImageStreamImages{Name: "rhel-9", OSImage: "quay.io/a/b@sha256:0123"})}, previous: []mcfgv1.OSImageStreamSet{had("rhel-9")},
			want: []string{"InvalidDigests InvalidImageReference"}, message: `its digest has 4 characters, and has to have 64`, stays: []string{"rhel-9"},
		},
		"a digest of a wrong length in a release": {
			in:       []Gathered{FromRelease([]Tag{{Name: "rhel-coreos", Kind: "DockerImage", Image: "quay.io/a/b@sha256:0123"}})},
			previous: []mcfgv1.OSImageStreamSet{had("rhel-9")}, want: []string{"InvalidDigests InvalidImageReference"}, stays: []string{"rhel-9"},
			message: `tag "rhel-coreos" of the release image`,
		},
		"a tag in a release": {
			in:       []Gathered{FromRelease([]Tag{{Name: "rhel-coreos", Kind: "DockerImage", Image: "quay.io/a/b:latest"}})},
			previous: []mcfgv1.OSImageStreamSet{had("rhel-9")}, want: []string{"InvalidDigests InvalidImageReference"}, stays: []string{"rhel-9"},
			message: "has to be named by digest",
		},
		"a release image that can't be read": {
			in:       []Gathered{Failing(SourceRelease, mcfgv1.StreamReleaseImageUnreadable, mcfgv1.ReasonSourceFailed, "denied")},
			previous: []mcfgv1.OSImageStreamSet{had("rhel-9"), had("rhel-10")}, want: []string{"ReleaseImageUnreadable SourceFailed"},
			stays: []string{"rhel-10", "rhel-9"}, message: "denied",
		},
		"an unreadable release image beside a ConfigMap's other image": {
			in: []Gathered{
				{Source: SourceConfigMap, Images: pair("rhel-9", "new")},
				Failing(SourceRelease, mcfgv1.StreamReleaseImageUnreadable, mcfgv1.ReasonRetrying, "down"),
			},
			previous: []mcfgv1.OSImageStreamSet{had("rhel-9")}, want: []string{"ReleaseImageUnreadable Retrying"}, stays: []string{"rhel-9"},
		},
		"a ConfigMap without images": {
			in: []Gathered{FromConfigMap(map[string]string{"baseOSImage": "typo"}, "")}, previous: []mcfgv1.OSImageStreamSet{had("rhel-9")},
			want: []string{"ConfigMapInvalid Invalid"}, stays: []string{"rhel-9"}, message: "has to have the keys baseOSContainerImage and baseOSExtensionsContainerImage",
		},
		"a ConfigMap with nonsense": {
			in: []Gathered{FromConfigMap(map[string]string{KeyOSImage: "whatever, the newest"}, "")}, previous: []mcfgv1.OSImageStreamSet{had("rhel-9")},
			want: []string{"InvalidDigests InvalidImageReference"}, stays: []string{"rhel-9"}, message: `key baseOSContainerImage of ConfigMap "machine-config-osimageurl"`,
		},
		"a ConfigMap of another release": {
			in: []Gathered{FromConfigMap(map[string]string{KeyOSImage: pinned("a"), KeyReleaseVersion: "4.20.0"}, "4.21.0")}, previous: []mcfgv1.OSImageStreamSet{had("rhel-9")},
			want: []string{"ConfigMapInvalid OtherRelease"}, stays: []string{"rhel-9"}, message: `belongs to release "4.20.0", but this controller to "4.21.0"`,
		},
		"an OS image without extensions": {
			in: []Gathered{release(image("tag x", RoleUnknown, "a", osLabels("rhel-9")))}, want: []string{"IncompleteStreams ExtensionsImageMissing"},
			unusable: map[string]string{"rhel-9": "ExtensionsImageMissing"}, message: `name its OS image in spec.images`,
		},
		"extensions without an OS image": {
			in: []Gathered{release(image("tag x", RoleUnknown, "a", extLabels("rhel-9")))}, want: []string{"IncompleteStreams OSImageMissing"},
			unusable: map[string]string{"rhel-9": "OSImageMissing"},
		},
		"a stream of which a new release has one image only": {
			in: []Gathered{release(image("tag x", RoleUnknown, "a", osLabels("rhel-9")))}, previous: []mcfgv1.OSImageStreamSet{had("rhel-9")},
			want: []string{"IncompleteStreams ExtensionsImageMissing"}, unusable: map[string]string{"rhel-9": "ExtensionsImageMissing"},
		},
		"a ConfigMap out of which someone has taken one image": {
			in:       []Gathered{{Source: SourceConfigMap, Images: []Found{image("key x", RoleOS, "a", osLabels("rhel-9"))}}},
			previous: []mcfgv1.OSImageStreamSet{had("rhel-9")}, want: []string{"IncompleteStreams ExtensionsImageMissing"}, stays: []string{"rhel-9"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var contributions []Contribution
			for _, g := range tt.in {
				contributions = append(contributions, Group(g))
			}
			set := Merge(contributions, tt.previous)
			assert.Equal(t, tt.want, typesOf(set.Problems))
			assert.Contains(t, Summarize(set.Problems)[0].Message, tt.message)
			for _, stream := range tt.stays {
				assert.Contains(t, set.Available, had(stream))
			}
			unusable := map[string]string{}
			for _, u := range set.Unusable {
				unusable[u.Name] = u.Reason
				assert.NotEmpty(t, u.Message)
			}
			if tt.unusable == nil {
				tt.unusable = map[string]string{}
			}
			assert.Equal(t, tt.unusable, unusable)
			assert.LessOrEqual(t, len(set.Available), MaxStreams)
			requireUniqueNames(t, set)
		})
	}
}

func requireUniqueNames(t *testing.T, set Set) {
	t.Helper()
	seen := map[string]bool{}
	for _, name := range Names(set.Available) {
		require.False(t, seen[name], name)
		seen[name] = true
	}
	for _, u := range set.Unusable {
		require.False(t, seen[u.Name], u.Name)
		seen[u.Name] = true
	}
}

func TestMergeFollowsPrecedence(t *testing.T) {
	t.Parallel()
	from := func(source Source, version string, streams ...string) Contribution {
		g := Gathered{Source: source, OSOnly: source == SourceSpec}
		for _, s := range streams {
			g.Images = append(g.Images, pair(s, version)...)
		}
		return Group(g)
	}
	set := Merge([]Contribution{ // in any order
		from(SourceSpec, "-spec", "d"), from(SourceRelease, "-release", "c", "d"),
		from(SourceConfigMap, "-map", "b", "c"), from(SourceArguments, "-args", "a", "b", "c", "d"),
	}, nil)
	images := map[string]string{}
	for _, stream := range set.Available {
		images[stream.Name] = string(stream.OSImage)
	}
	assert.Equal(t, map[string]string{
		"a": pinned("a-args"), "b": pinned("b-map"), "c": pinned("c-release"), "d": pinned("d-spec"),
	}, images)
	assert.Equal(t, []string{"ConflictingSources Overridden"}, typesOf(set.Problems))
	assert.Contains(t, Summarize(set.Problems)[0].Message, `stream "d": the images of spec.images are used, and not those of the release image`)

	same := Merge([]Contribution{from(SourceConfigMap, "", "a"), from(SourceRelease, "", "a")}, nil)
	assert.Empty(t, same.Problems, "the same images are no conflict")
}

func TestMergeTakesTheWholePairOfALowerSource(t *testing.T) {
	t.Parallel()
	set := Merge([]Contribution{
		Group(Gathered{Source: SourceConfigMap, Images: pair("rhel-9", "")}),
		Group(release(image("tag x", RoleUnknown, "a", osLabels("rhel-9")))),
	}, nil)
	require.Len(t, set.Available, 1)
	assert.Equal(t, pinned("rhel-9"), string(set.Available[0].OSImage), "images of two sources are never mixed")
	assert.Equal(t, []string{"IncompleteStreams ExtensionsImageMissing"}, typesOf(set.Problems))
	assert.Empty(t, set.Unusable)
}

func TestMergeTakesAnOSImageAloneFromSpec(t *testing.T) {
	t.Parallel()
	g := FromSpec([]mcfgv1.OSImageStreamImages{{Name: "fcos", OSImage: mcfgv1.ImageReferenceFormat(pinned("a"))}})
	g.Images[0].Pinned = pinned("a")
	set := Merge([]Contribution{Group(g)}, nil)
	require.Len(t, set.Available, 1)
	assert.Empty(t, set.Problems, "and needs no labels: spec says what it is")
}

func TestMergeRemovesAStreamThatItsSourceDropped(t *testing.T) {
	t.Parallel()
	set := Merge([]Contribution{Group(release(pair("rhel-10", "")...))}, []mcfgv1.OSImageStreamSet{had("rhel-9")})
	assert.Equal(t, []string{"rhel-10"}, Names(set.Available))
	assert.Empty(t, set.Kept)
}

func TestMergeWithAFailingSource(t *testing.T) {
	t.Parallel()
	set := Merge([]Contribution{
		Group(Failing(SourceConfigMap, mcfgv1.StreamConfigMapInvalid, mcfgv1.ReasonInvalid, "nonsense")),
		Group(release(pair("rhel-9", "-new")...)),
	}, []mcfgv1.OSImageStreamSet{had("rhel-9"), had("extra")})
	assert.Equal(t, []string{"extra"}, set.Kept, "the release wins over the ConfigMap, whatever that says")
	assert.Equal(t, pinned("rhel-9-new"), string(set.Available[1].OSImage))
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		tag  Tag
		want bool
	}{
		"today's name":              {Tag{Name: "rhel-coreos", Kind: "DockerImage"}, true},
		"today's extensions":        {Tag{Name: "rhel-coreos-10-extensions", Kind: "DockerImage"}, true},
		"the design's name":         {Tag{Name: "rhel9-coreos", Kind: "DockerImage"}, true},
		"with a minor version":      {Tag{Name: "rhel-9.6-coreos", Kind: "DockerImage"}, true},
		"with a suffix":             {Tag{Name: "rhel-coreos-10-nvidia-extensions", Kind: "DockerImage"}, true},
		"of OKD":                    {Tag{Name: "stream-coreos-extensions", Kind: "DockerImage"}, true},
		"another image":             {Tag{Name: "etcd", Kind: "DockerImage"}, false},
		"half a name":               {Tag{Name: "my-rhel-coreos", Kind: "DockerImage"}, false},
		"no image":                  {Tag{Name: "rhel-coreos", Kind: "ImageStreamTag"}, false},
		"built from the repository": {Tag{Name: "machine-os", Kind: "DockerImage", Annotations: map[string]string{annotationSource: "https://github.com/openshift/os"}}, true},
		"built from its clone":      {Tag{Name: "machine-os", Kind: "DockerImage", Annotations: map[string]string{annotationSource: "https://github.com/openshift/os.git"}}, true},
		"built from one like it":    {Tag{Name: "oc-mirror", Kind: "DockerImage", Annotations: map[string]string{annotationSource: "https://github.com/openshift/osin"}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, len(Candidates([]Tag{tt.tag})) == 1)
		})
	}
}

func TestADigestCountsBesideATag(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("0", 64)
	found := FromSpec([]mcfgv1.OSImageStreamImages{{Name: "a", OSImage: mcfgv1.ImageReferenceFormat("quay.io/os:stable" + digest)}}).Images
	require.Len(t, found, 1)
	assert.Nil(t, found[0].Problem)
	assert.Equal(t, "quay.io/os"+digest, found[0].Image)
}

func TestCheckReference(t *testing.T) {
	t.Parallel()
	hex := strings.Repeat("0", 64)
	tests := map[string]string{
		"quay.io/a/b:tag":                     "",
		"quay.io/a/b@sha256:" + hex:           "",
		"registry:5000/b@sha256:" + hex:       "",
		"quay.io/a.b/c__d:tag@sha256:" + hex:  "",
		"[fd00::1]:5000/b:tag":                "",
		"quay.io/a/b":                         "it has neither a tag nor a digest",
		"quay.io/a/b@sha256:" + hex[1:]:       "its digest has 63 characters, and has to have 64",
		"quay.io/a/b@sha256:" + hex + "0":     "its digest has 65 characters, and has to have 64",
		"quay.io/a/b@sha512:" + hex + hex:     `its digest is of the kind "sha512", and has to be sha256`,
		"quay.io/a/b@sha256:" + hex[1:] + "X": "its digest has characters other than 0-9 and a-f",
		"team/b@sha256:" + hex:                "it has to be host[:port]/path/name, followed by :<tag> or by @sha256:<digest>; a host without a dot needs a port",
		"":                                    "it has neither a tag nor a digest",
	}
	for image, want := range tests {
		assert.Equal(t, want, CheckReference(image), image)
	}
}

func TestDefault(t *testing.T) {
	t.Parallel()
	sets := func(names ...string) (out []mcfgv1.OSImageStreamSet) {
		for _, name := range names {
			out = append(out, had(name))
		}
		return out
	}
	tests := map[string]struct {
		in     DefaultInput
		want   string
		reason string
		err    string
	}{
		"what is asked for": {
			in:   DefaultInput{Wanted: "rhel-10", Previous: "rhel-9", Available: sets("rhel-10", "rhel-9"), InstallVersion: "4.21"},
			want: "rhel-10", reason: "spec.defaultStream asks for it",
		},
		"what was, after an upgrade": {
			in:   DefaultInput{Previous: "rhel-9", Available: sets("rhel-10", "rhel-9"), InstallVersion: "5.0.0"},
			want: "rhel-9", reason: "it has been the default",
		},
		"the only one": {in: DefaultInput{Available: sets("mine")}, want: "mine", reason: "it is the only one"},
		"by the version that was installed": {
			in:   DefaultInput{Available: sets("rhel-10", "rhel-9"), InstallVersion: "4.19.3"},
			want: "rhel-9", reason: "it is the default of a cluster that was installed with 4.19.3",
		},
		"by that of a newer cluster":   {in: DefaultInput{Available: sets("rhel-10", "rhel-9"), InstallVersion: "5.0.0"}, want: "rhel-10", reason: "it is the default of a cluster that was installed with 5.0.0"},
		"in the design's names":        {in: DefaultInput{Available: sets("rhel10-coreos", "rhel9-coreos"), InstallVersion: "4.21"}, want: "rhel9-coreos", reason: "it is the default of a cluster that was installed with 4.21"},
		"of OKD":                       {in: DefaultInput{Available: sets("centos-10", "centos-9"), InstallVersion: "4.21"}, want: "centos-10", reason: "it is the default of a cluster that was installed with 4.21"},
		"of OKD in the design's names": {in: DefaultInput{Available: sets("stream-coreos", "rhel-9"), Distribution: DistributionSCOS, InstallVersion: "4.21"}, want: "stream-coreos", reason: "it is the default of a cluster that was installed with 4.21"},
		"of Fedora":                    {in: DefaultInput{Available: sets("fedora-coreos", "other"), Distribution: DistributionFCOS}, want: "fedora-coreos", reason: "it is the default of a cluster of unknown version"},
		"none, and no one asks": {
			in:  DefaultInput{Available: sets("a", "b")},
			err: "none of the streams is the default of a cluster of unknown version, and spec.defaultStream names none; available are: a, b",
		},
		"a wrong name, where there was a default": {
			in:   DefaultInput{Wanted: "rhel-11", Previous: "rhel-9", Available: sets("rhel-10", "rhel-9")},
			want: "rhel-9", reason: "it has been the default", err: `spec.defaultStream "rhel-11" is not available; available are: rhel-10, rhel-9; the default is "rhel-9" until then`,
		},
		"a wrong name, and nothing to fall back to": {
			in:  DefaultInput{Wanted: "rhel-11", Available: sets("a", "b")},
			err: `spec.defaultStream "rhel-11" is not available; available are: a, b`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, reason, err := Default(tt.in)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.reason, reason)
			if tt.err == "" {
				require.NoError(t, err)
				return
			}
			var refused *Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, "DefaultStreamNotAvailable", refused.Reason)
			assert.Equal(t, tt.err, err.Error())
		})
	}
}

func FuzzParseImageStream(f *testing.F) {
	f.Add([]byte(`{"kind":"ImageStream","spec":{"tags":[{"name":"rhel-coreos","from":{"kind":"DockerImage","name":"quay.io/a/b@sha256:00"}}]}}`))
	f.Add([]byte("kind: ImageStream\nspec: {tags: [{name: x}]}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		release, err := ParseImageStream(content)
		if err != nil {
			return
		}
		g := FromRelease(release.Tags)
		for i := range g.Images {
			g.Images[i].Pinned = g.Images[i].Image
			g.Images[i].Labels = osLabels(release.Tags[0].Name)
		}
		requireUniqueNames(t, Merge([]Contribution{Group(g)}, nil))
	})
}
