package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

// seeds are provider specifications of every kind that is known, and of one that is not.
func seeds() map[string]string {
	marketplace := `{"image":{"marketplace":{"publisher":"azureopenshift","offer":"aro4","sku":"aro4-gen1","version":"1"}},"vmSize":"x"}`
	metal := fmt.Sprintf(metalMachine, "mirror.example.com")
	named := `{"image":{"type":"name","name":"x"},"imageRef":"y","userDataSecret":{"name":"u"}}`
	return map[string]string{
		"AWSMachineProviderConfig": awsMachine, "AWSMachineTemplate": `{"ami":{"id":"ami-0123456789abcdef0"},"instanceType":"x"}`,
		"GCPMachineProviderSpec": gcpMachine, "GCPMachineTemplate": `{"image":"projects/rhcos-cloud/global/images/rhcos-1","instanceType":"n1"}`,
		"AzureMachineProviderSpec": azureInstalled, "AzureMachineTemplate": marketplace,
		"VSphereMachineProviderSpec": fmt.Sprintf(vsphereMachine, "/dc/vm/lab/lab-x7-rhcos"), "VSphereMachineTemplate": `{"template":"lab-x7-rhcos-us"}`,
		"BareMetalMachineProviderSpec": metal, "Metal3MachineTemplate": metal,
		"OpenstackProviderSpec": `{"image":"lab-x7-rhcos"}`, "OpenStackMachineTemplate": `{"image":{"filter":{"name":"x"}}}`,
		"NutanixMachineProviderConfig": named, "NutanixMachineTemplate": named, "IBMCloudMachineProviderSpec": `{"image":"x"}`,
		"IBMVPCMachineTemplate": named, "PowerVSMachineProviderConfig": named, "IBMPowerVSMachineTemplate": named, "LibvirtMachineProviderConfig": `{"volume":{}}`,
	}
}

// chance makes up what no one would write, in a cluster with two streams.
type chance struct {
	*rand.Rand
	data   map[string]string
	images *BootImages
}

func newChance(t *testing.T) *chance {
	t.Helper()
	data := bothStreams(t)
	return &chance{nil, data, images(t, data)}
}

// begin has the same follow from the same seed.
func (c *chance) begin(seed, stream uint64) { c.Rand = rand.New(rand.NewPCG(seed, stream)) } //nolint:gosec // any order will do

func (c *chance) one(of ...any) any { return of[c.IntN(len(of))] }

// value is anything that JSON can say.
func (c *chance) value() any {
	return c.one(nil, true, false, int64(7), 2.5, "", "x", "/", ":::", "a/../b", "ami-0123456789abcdef0", "lab-x7-rhcos/", "#sha256=", strings.Repeat("9", 2000),
		map[string]any{}, map[string]any{"id": "x", "name": int64(1)}, []any{}, []any{nil, "x", map[string]any{"boot": true, "image": "y"}})
}

// text is another text that has much of the old one.
func (c *chance) text(old string) string {
	at := c.IntN(len(old) + 1)
	switch c.IntN(6) {
	case 0:
		return old[:at]
	case 1:
		return old[:at] + c.one("/", ":", "-gen1", "9", "é\x00", "rhel-10", "?token=hunter2").(string) + old[at:]
	case 2:
		return old + old
	case 3:
		return strings.ReplaceAll(old, "9", "10")
	case 4:
		return strings.ToUpper(old)
	default:
		return old + "/"
	}
}

// mutate changes a value somewhere.
func (c *chance) mutate(value any) any {
	if c.IntN(12) == 0 {
		return c.value()
	}
	switch is := value.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(is))
		if len(keys) == 0 || c.IntN(10) == 0 {
			is[c.one("image", "ami", "template", "snapshot", "disks", "boot", "id", "imageFamily", "securityProfile", "type", "other").(string)] = c.value()
			return is
		}
		key := keys[c.IntN(len(keys))]
		if c.IntN(12) == 0 {
			delete(is, key)
			return is
		}
		is[key] = c.mutate(is[key])
	case []any:
		if len(is) > 0 {
			at := c.IntN(len(is))
			is[at] = c.mutate(is[at])
		}
	case string:
		return c.text(is)
	}
	return value
}

// input is a resource of anything, in a cluster of anything.
func (c *chance) input(t *testing.T, kind string, spec Spec) Input {
	t.Helper()
	in := Input{
		Stream: c.one("rhel-9", "rhel9-coreos", "rhel-10", "rhel-10", "rhel-11", "").(string), Architecture: c.one("amd64", "amd64", "arm64", "ppc64le", "riscv64", "").(string),
		Region: c.one("us-east-1", "eu-west-1", "mars-1", "").(string), Now: t0, CanUpload: c.IntN(4) > 0, Owners: map[Question]Owner{},
		Resource: Resource{
			Labels: map[string]string{labelInfra: c.one("lab-x7", "lab-x7", "", "x").(string)}, ProviderKind: kind, ProviderSpec: spec,
			Annotations: map[string]string{}, IsOwned: c.IntN(20) == 0, IsElsewhere: c.IntN(20) == 0,
		},
	}
	if c.IntN(8) == 0 {
		in.Resource.Labels[mcfgv1.LabelOSStream] = c.one("rhel-9", "rhel-10", "x").(string)
	}
	if c.IntN(8) == 0 {
		in.Resource.Annotations[annotationLabels] = c.one("kubernetes.io/arch=arm64", "kubernetes.io/arch=", ",,=", "kubernetes.io/arch=x").(string)
	}
	for range c.IntN(4) {
		in.History = append(in.History, mcfgv1alpha1.BootImageHistoryDetail{
			Image: c.one("ami-00000006", "a:b:c:d", "/x", "https://x#sha256=y", "").(string), BootImageVersion: release9, UpdateTime: at(t0.Add(-time.Minute)),
		})
	}
	if c.IntN(8) == 0 {
		in.Resource.Annotations[mcfgv1.AnnotationBootImagePin] = release9
	}
	in.Images = c.images
	if c.IntN(3) == 0 { // a hand that edits the ConfigMap
		key := c.one(KeyStream, KeyStreams).(string)
		data := maps.Clone(c.data)
		var is any
		require.NoError(t, utiljson.Unmarshal([]byte(data[key]), &is))
		for range 1 + c.IntN(8) {
			is = c.mutate(is)
		}
		data[key] = toJSON(t, is)
		if edited, err := Parse(data, majors, variants); err == nil {
			in.Images = edited
		}
	}
	return in
}

// check has the plan decide about a specification in a cluster that a seed makes up. An update may
// change nothing but the image, and only to one of the pool's stream; all else is a reason with a
// message.
func (c *chance) check(t *testing.T, kind string, spec Spec, seed uint64) Action {
	t.Helper()
	c.begin(seed, 0)
	in := c.input(t, kind, spec)
	before := runtime.DeepCopyJSON(map[string]any{"spec": map[string]any(spec)})
	d := Decide(in)
	if d.Action == ActionAsk {
		require.NotEmpty(t, d.Question)
		in.Owners[d.Question] = Owner{Account: c.one(awsRHCOS, awsFCOS, awsMarketplace, "", "1").(string)}
		d = Decide(in)
		require.NotEqual(t, ActionAsk, d.Action, "nothing is asked twice")
	}
	require.Equal(t, before["spec"], map[string]any(in.Resource.ProviderSpec), "the input is left as it is")
	switch d.Action {
	case ActionUpdate:
		requireOnlyTheImage(t, in.Resource.ProviderSpec, &d)
		c.requireRightImage(t, &in, &d)
	case ActionNone:
		require.Nil(t, d.Spec)
		require.Equal(t, d.Current, d.Wanted.ID)
	case ActionSkip, ActionFail:
		require.Nil(t, d.Spec)
		require.NotEmpty(t, d.Reason, d)
		require.NotEmpty(t, d.Message, d)
		require.Equal(t, d.Action == ActionSkip && d.Reason != ReasonWindows, d.IsCounted)
	default:
		t.Fatalf("unknown action %q", d.Action)
	}
	return d.Action
}

// requireRightImage requires that an update is to the image that it should be.
func (c *chance) requireRightImage(t *testing.T, in *Input, d *Decision) {
	t.Helper()
	current, problem := providers()[in.Resource.ProviderKind].kind.current(d.Spec)
	require.Nil(t, problem)
	require.Equal(t, d.Wanted.ID, current, "it names what is wanted")
	require.LessOrEqual(t, max(len(d.Wanted.ID), len(d.Current)), 1024, "no more than a BootImageHistory may have")
	require.LessOrEqual(t, max(len(d.Wanted.Version), len(d.CurrentVersion)), 128)
	if d.Reason == ReasonPinned {
		require.True(t, slices.ContainsFunc(in.History, func(e mcfgv1alpha1.BootImageHistoryDetail) bool { return e.Image == d.Wanted.ID }))
		return
	}
	has, want := ParseVersion(d.Wanted.Version).RHEL.Major, in.Images.major(d.Stream)
	require.True(t, has == 0 || want == 0 || has == want, "an image of RHEL %d for a pool of RHEL %d: %s", has, want, d.Wanted.ID)
	if in.Images != c.images { // what someone wrote there is the right one, as far as it can be one
		return
	}
	arch, problem := architectureOf(in.Resource.Annotations, in.Architecture)
	require.Nil(t, problem)
	region := in.Region
	if in.Resource.ProviderKind == "AWSMachineProviderConfig" {
		region = text(in.Resource.ProviderSpec, "placement", "region")
	}
	stream := c.images.find(d.Stream).Architectures[arch]
	release := stream.Artifacts["vmware"].Release
	disk := stream.Artifacts["openstack"].Formats["qcow2.gz"].Disk
	right := map[string]string{
		"AWS": stream.Images.Aws.Regions[region].Image, "GCP": gcpID(stream.Images.Gcp), "BareMetal": disk.Location + "#sha256=" + disk.Sha256,
		"VSphere": path.Join(path.Dir(d.Current), "lab-x7-rhcos-"+release+"-"+storeOf(in.Resource.ProviderSpec)),
	}[d.Platform]
	if d.Platform == "Azure" {
		require.NotEmpty(t, azureVersionIn(&stream, d.Wanted.ID))
	} else {
		require.Equal(t, right, d.Wanted.ID)
	}
	require.Equal(t, release, d.Wanted.Version)
}

func TestThereIsNeverAWrongPatch(t *testing.T) {
	t.Parallel()
	for kind := range providers() {
		require.Contains(t, seeds(), kind, "every kind is tried")
	}
	for kind, text := range seeds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			came, c := map[Action]int{}, newChance(t)
			for seed := range uint64(500) {
				c.begin(seed, 1)
				is := spec(t, text)
				for range c.IntN(4) {
					if changed, isObject := c.mutate(map[string]any(is)).(map[string]any); isObject {
						is = changed
					}
				}
				came[c.check(t, kind, is, seed)]++
			}
			p := providers()[kind]
			canUpdate := p != nil && !reflect.DeepEqual(p.kind, imported{})
			require.Equal(t, canUpdate, came[ActionUpdate] > 20, came)
		})
	}
}

func FuzzDecide(f *testing.F) {
	for kind, text := range seeds() {
		f.Add(kind, text, uint64(1))
	}
	f.Fuzz(func(t *testing.T, kind, text string, seed uint64) {
		var is Spec
		if json.Valid([]byte(text)) && utiljson.Unmarshal([]byte(text), &is) == nil {
			newChance(t).check(t, kind, is, seed)
		}
	})
}
