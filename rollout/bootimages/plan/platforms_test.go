package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coreos/stream-metadata-go/stream/rhcos"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

// Provider specifications as installers write them, with more than the image in them.
const (
	awsMachine = `{"apiVersion":"machine.openshift.io/v1beta1","kind":"AWSMachineProviderConfig","ami":{"id":"ami-0123456789abcdef0"},
		"instanceType":"m6i.large","placement":{"region":"us-east-1","availabilityZone":"us-east-1a"},"userDataSecret":{"name":"worker-user-data"},
		"blockDevices":[{"ebs":{"volumeSize":120,"encrypted":true}}],"unknownField":{"kept":[1,2.5,"x",null]}}`
	gcpMachine = `{"kind":"GCPMachineProviderSpec","disks":[{"boot":true,"image":"projects/rhcos-cloud/global/images/rhcos-415-92-202311241643-0-gcp-x86-64",
		"sizeGb":128},{"boot":false,"image":"projects/mine/global/images/data","sizeGb":10}],"machineType":"n2","region":"us-east1"}`
	azureInstalled = `{"kind":"AzureMachineProviderSpec","image":{"publisher":"","offer":"","sku":"","version":"",
		"resourceID":"/resourceGroups/lab-x7-rg/providers/Microsoft.Compute/galleries/gallery_lab/images/lab-x7-gen2/versions/latest"},"vmSize":"Standard_D4s_v3"}`
	azureMarketplace = `{"kind":"AzureMachineProviderSpec","image":{"publisher":"%s","offer":"%s","sku":"%s","version":"9.0.0","resourceID":"","type":"%s"},"vmSize":"x"}`
	vsphereMachine   = `{"kind":"VSphereMachineProviderSpec","template":"%s","workspace":{"folder":"/dc/vm/lab","server":"vc"},"numCPUs":4}`
	metalMachine     = `{"kind":"BareMetalMachineProviderSpec","image":{"url":"https://%s/rhcos-9.4.20240101-0-openstack.x86_64.qcow2.gz","checksum":"ab"},"hostSelector":{}}`
)

func TestEachPlatformGetsTheImageOfItsStream(t *testing.T) {
	t.Parallel()
	gcp9, gcp10 := "projects/rhcos-cloud/global/images/rhcos-9-x-gcp-x86-64", "projects/rhcos-cloud/global/images/rhcos-10-x-gcp-x86-64"
	place := storeOf(spec(t, fmt.Sprintf(vsphereMachine, "x")))
	metal := "https://mirror.example.com/rhcos-%s-openstack.x86_64.qcow2.gz#sha256=%064d"
	paid := fmt.Sprintf(azureMarketplace, "redhat", "rh-ocp-worker", "rh-ocp-worker-gen1", "MarketplaceWithPlan")
	emea := fmt.Sprintf(azureMarketplace, "redhat-limited", "rh-oke-worker", "rh-oke-worker", "MarketplaceWithPlan")
	tests := map[string]struct {
		spec, on9, on10 string
		owner           string
	}{
		"AWSMachineProviderConfig": {spec: awsMachine, on9: "ami-000000069", on10: "ami-0000000610", owner: awsRHCOS},
		"AWSMachineTemplate":       {spec: `{"ami":{"id":"ami-0123456789abcdef0"},"instanceType":"x"}`, on9: "ami-000000069", on10: "ami-0000000610", owner: awsRHCOS},
		"GCPMachineProviderSpec":   {spec: gcpMachine, on9: gcp9, on10: gcp10},
		"GCPMachineTemplate":       {spec: `{"image":"projects/rhcos-cloud/global/images/rhcos-1","instanceType":"n1"}`, on9: gcp9, on10: gcp10},
		"AzureMachineProviderSpec": {spec: azureInstalled, on9: "azureopenshift:aro4:aro4:9.0.1", on10: "azureopenshift:aro4:aro4:10.0.1"},
		"AzureMachineProviderSpec with a plan": {
			spec: paid, on9: "redhat:rh-ocp-worker:rh-ocp-worker-gen1:9.0.1", on10: "redhat:rh-ocp-worker:rh-ocp-worker-gen1:10.0.1",
		},
		"AzureMachineProviderSpec with a plan of EMEA": {
			spec: emea, on9: "redhat-limited:rh-oke-worker:rh-oke-worker:9.0.1", on10: "redhat-limited:rh-oke-worker:rh-oke-worker:10.0.1",
		},
		"AzureMachineTemplate": {
			spec: `{"image":{"marketplace":{"publisher":"azureopenshift","offer":"aro4","sku":"aro4-gen1","version":"1","thirdPartyImage":false}},"vmSize":"x"}`,
			on9:  "azureopenshift:aro4:aro4-gen1:9.0.1", on10: "azureopenshift:aro4:aro4-gen1:10.0.1",
		},
		"VSphereMachineProviderSpec": {
			spec: fmt.Sprintf(vsphereMachine, "/dc/vm/lab/lab-x7-rhcos"), on9: "/dc/vm/lab/lab-x7-rhcos-" + release9 + "-" + place,
			on10: "/dc/vm/lab/lab-x7-rhcos-" + release10 + "-" + place,
		},
		"VSphereMachineTemplate": {
			spec: `{"template":"lab-x7-rhcos-us"}`, on9: "lab-x7-rhcos-" + release9 + "-" + storeOf(nil), on10: "lab-x7-rhcos-" + release10 + "-" + storeOf(nil),
		},
		"BareMetalMachineProviderSpec": {
			spec: fmt.Sprintf(metalMachine, "mirror.example.com"), on9: fmt.Sprintf(metal, release9, 9), on10: fmt.Sprintf(metal, release10, 10),
		},
		"Metal3MachineTemplate": {
			spec: fmt.Sprintf(metalMachine, "mirror.example.com"), on9: fmt.Sprintf(metal, release9, 9), on10: fmt.Sprintf(metal, release10, 10),
		},
	}
	for name, tt := range tests {
		kind, _, _ := strings.Cut(name, " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for stream, want := range map[string]string{"rhel-9": tt.on9, "rhel9-coreos": tt.on9, "rhel-10": tt.on10} {
				in := input(t, kind, tt.spec)
				in.Stream = stream
				if tt.owner != "" {
					asked := Decide(in)
					require.Equal(t, ActionAsk, asked.Action, asked)
					in.Owners = map[Question]Owner{asked.Question: {Account: tt.owner}}
				}
				before := runtime.DeepCopyJSON(in.Resource.ProviderSpec)
				d := Decide(in)
				require.Equal(t, ActionUpdate, d.Action, d)
				assert.Equal(t, want, d.Wanted.ID)
				assert.Equal(t, map[bool]string{true: release10, false: release9}[stream == "rhel-10"], d.Wanted.Version)
				assert.Equal(t, before, in.Resource.ProviderSpec, "the input is left as it is")

				requireOnlyTheImage(t, in.Resource.ProviderSpec, &d)
				again := in
				again.Resource.ProviderSpec = d.Spec
				settled := Decide(again)
				assert.Equal(t, ActionNone, settled.Action, settled)
				assert.Equal(t, d.Wanted.Version, settled.CurrentVersion)

				back := again // and the way back, by the history
				back.History = Record(nil, &d, 1, at(t0))
				back.Resource.Annotations = map[string]string{"machineconfiguration.openshift.io/boot-image-pinned-to": d.Current}
				undone := Decide(back)
				require.Equal(t, ActionUpdate, undone.Action, undone)
				require.Equal(t, d.Current, undone.Wanted.ID)
				last := Record(back.History, &undone, 7, at(t0))[2]
				assert.Zero(t, last.ConfigMapGeneration, "it is not from the ConfigMap")
				assert.Empty(t, last.Stream, "nothing says which stream it is of")
				current, _ := providers()[kind].kind.current(undone.Spec)
				assert.Equal(t, d.Current, current)
			}
		})
	}
}

// requireOnlyTheImage removes the fields of the image from both specifications, and compares the
// rest.
func requireOnlyTheImage(t *testing.T, before Spec, d *Decision) {
	t.Helper()
	a, b := runtime.DeepCopyJSON(before), runtime.DeepCopyJSON(d.Spec)
	for _, s := range []Spec{a, b} {
		for _, field := range []string{"ami", "image", "template"} {
			delete(s, field)
		}
		for _, disk := range bootDisks(s) {
			delete(disk, "image")
		}
	}
	require.Equal(t, a, b)
}

func TestWhatIsLeftAlone(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kind, spec string
		change     func(*Input)
		reason     string
		fails      bool
		uncounted  bool
	}{
		"an owner": {"GCPMachineProviderSpec", gcpMachine, func(in *Input) { in.Resource.IsOwned = true }, ReasonOwnerReference, false, false},
		"a resource that another one made": {
			"GCPMachineTemplate", `{"image":"x"}`, func(in *Input) { in.Resource.IsOwned, in.Resource.Main = true, "MachineDeployment a/b" }, ReasonPartOfAnother, false, true,
		},
		"a mirror": {
			"GCPMachineTemplate", `{"image":"x"}`, func(in *Input) { in.Resource.IsElsewhere, in.Resource.Main = true, "MachineSet a/b" }, ReasonPartOfAnother, false, true,
		},
		"the other API": {
			"GCPMachineProviderSpec", gcpMachine, func(in *Input) { in.Resource.IsElsewhere = true }, ReasonAuthoritativeAPI, false, false,
		},
		"Windows": {
			"GCPMachineProviderSpec", gcpMachine,
			func(in *Input) { in.Resource.MachineLabels = map[string]string{labelWindows: "Windows"} }, ReasonWindows, false, true,
		},
		"no provider specification":   {"", "", nil, ReasonInvalidProviderSpec, true, false},
		"an unknown kind":             {"AlibabaCloudMachineProviderConfig", `{"imageID":"x"}`, nil, ReasonUnknownProvider, false, false},
		"a field of the wrong type":   {"AWSMachineProviderConfig", `{"ami":{"id":7}}`, nil, ReasonInvalidProviderSpec, true, false},
		"no image":                    {"AWSMachineProviderConfig", `{"placement":{"region":"us-east-1"}}`, nil, ReasonNoImage, false, false},
		"no boot disk":                {"GCPMachineProviderSpec", `{"disks":[{"boot":false,"image":"x"}]}`, nil, ReasonNoImage, false, false},
		"two boot disks":              {"GCPMachineProviderSpec", `{"disks":[{"boot":true},{"boot":true}]}`, nil, ReasonInvalidProviderSpec, true, false},
		"an AMI by filter":            {"AWSMachineProviderConfig", `{"ami":{"filters":[{"name":"x","values":["y"]}]}}`, nil, ReasonCustomImage, false, false},
		"an AMI by ARN":               {"AWSMachineProviderConfig", `{"ami":{"arn":"arn:aws:x"}}`, nil, ReasonCustomImage, false, false},
		"an AMI of an unknown owner":  {"AWSMachineProviderConfig", awsMachine, owner("123456789012"), ReasonUnknownImageOwner, false, false},
		"an AMI of the marketplace":   {"AWSMachineProviderConfig", awsMachine, owner(awsMarketplace), ReasonMarketplaceImage, false, false},
		"an AMI that no one looks up": {"AWSMachineProviderConfig", awsMachine, owner(""), ReasonUnknownImageOwner, false, false},
		"a region without image": {
			"AWSMachineProviderConfig", strings.ReplaceAll(awsMachine, "us-east-1", "mars-1"), nil, ReasonNoImageForRegion, false, false,
		},
		"an unknown region": {"AWSMachineTemplate", `{"ami":{"id":"ami-1"}}`, func(in *Input) { in.Region = "" }, ReasonNoImageForRegion, false, false},
		"an image of another project": {
			"GCPMachineProviderSpec", strings.Replace(gcpMachine, "rhcos-cloud", "redhat-marketplace-public", 1), nil, ReasonCustomImage, false, false,
		},
		"an image family": {
			"GCPMachineTemplate", `{"image":"projects/rhcos-cloud/global/images/family/rhcos"}`, nil, ReasonCustomImage, false, false,
		},
		"a confidential machine": {
			"AzureMachineProviderSpec", strings.Replace(azureInstalled, `"vmSize"`, `"securityProfile":{"settings":{"securityType":"ConfidentialVM"}},"vmSize"`, 1),
			nil, ReasonConfidential, false, false,
		},
		"an architecture without marketplace": {
			"AzureMachineProviderSpec", azureInstalled, architecture("ppc64le"), ReasonNoImageForStream, false, false,
		},
		"an image of one's own":       {"AzureMachineProviderSpec", strings.ReplaceAll(azureInstalled, "lab-x7-gen2", "mine"), nil, ReasonCustomImage, false, false},
		"an offer of a stranger":      {"AzureMachineProviderSpec", fmt.Sprintf(azureMarketplace, "canonical", "ubuntu", "s", ""), nil, ReasonUnknownImageOwner, false, false},
		"an image of a gallery":       {"AzureMachineTemplate", `{"image":{"computeGallery":{"gallery":"g","name":"n","version":"1"}}}`, nil, ReasonCustomImage, false, false},
		"a template that is a folder": {"VSphereMachineProviderSpec", fmt.Sprintf(vsphereMachine, "/dc/vm/lab-x7-rhcos/"), nil, ReasonCustomImage, false, false},
		"a template of one's own":     {"VSphereMachineProviderSpec", fmt.Sprintf(vsphereMachine, "golden"), nil, ReasonCustomImage, false, false},
		"a snapshot of a template": {
			"VSphereMachineProviderSpec", strings.Replace(fmt.Sprintf(vsphereMachine, "lab-x7-rhcos"), `"numCPUs"`, `"snapshot":"s1","numCPUs"`, 1), nil,
			ReasonCustomImage, false, false,
		},
		"no one who uploads": {
			"VSphereMachineProviderSpec", fmt.Sprintf(vsphereMachine, "lab-x7-rhcos"), func(in *Input) { in.CanUpload = false }, ReasonNeedsUpload, false, false,
		},
		"an image of a mirror": {"BareMetalMachineProviderSpec", fmt.Sprintf(metalMachine, "mirror.local"), nil, ReasonCustomImage, false, false},
		"an image of a mirror with a password": {
			"BareMetalMachineProviderSpec", fmt.Sprintf(metalMachine, "user:hunter2@mirror.example.com"), nil, ReasonCustomImage, false, false,
		},
		"an image whose name has no end": {
			"GCPMachineProviderSpec", strings.Replace(gcpMachine, "rhcos-415", strings.Repeat("rhcos-415", 200), 1), nil, ReasonCustomImage, false, false,
		},
		"a kind without specification": {"DockerMachineTemplate", "", nil, ReasonUnknownProvider, false, false},
		"an image of OpenStack":        {"OpenstackProviderSpec", `{"image":"lab-x7-rhcos"}`, nil, ReasonNeedsUpload, false, false},
		"an image of Nutanix":          {"NutanixMachineProviderConfig", `{"image":{"type":"name","name":"x"}}`, nil, ReasonNeedsUpload, false, false},
		"an image of IBM Cloud":        {"IBMCloudMachineProviderSpec", `{"image":"x"}`, nil, ReasonNeedsUpload, false, false},
		"an image of Power VS":         {"PowerVSMachineProviderConfig", `{"image":{"type":"Name","name":"x"}}`, nil, ReasonNeedsUpload, false, false},
		"several architectures":        {"GCPMachineProviderSpec", gcpMachine, func(in *Input) { in.Architecture = "" }, ReasonNoArchitecture, false, false},
		"an unknown architecture":      {"GCPMachineProviderSpec", gcpMachine, architecture("riscv64"), ReasonUnknownArchitecture, true, false},
		"a stream without images":      {"GCPMachineProviderSpec", gcpMachine, func(in *Input) { in.Stream = "rhel-11" }, ReasonNoImageForStream, false, false},
		"a label of another stream than the pool's": {
			"GCPMachineProviderSpec", gcpMachine, func(in *Input) { in.Resource.Labels["machineconfiguration.openshift.io/osstream"] = "rhel-10" },
			ReasonStreamConflict, false, false,
		},
		"a label of a variant of the pool's stream": {
			"GCPMachineProviderSpec", gcpMachine, func(in *Input) { in.Resource.Labels["machineconfiguration.openshift.io/osstream"] = "rhel-9-nvidia" },
			ReasonStreamConflict, false, false,
		},
		"a pin that the history does not have": {
			"GCPMachineProviderSpec", gcpMachine,
			func(in *Input) {
				in.Resource.Annotations = map[string]string{"machineconfiguration.openshift.io/boot-image-pinned-to": "1.2.3"}
			}, ReasonUnknownPin, true, false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(t, tt.kind, tt.spec)
			if tt.change != nil {
				tt.change(&in)
			}
			d := Decide(in)
			want := map[bool]Action{true: ActionFail, false: ActionSkip}[tt.fails]
			require.Equal(t, want, d.Action, d)
			assert.Equal(t, tt.reason, d.Reason, d.Message)
			assert.Equal(t, !tt.fails && !tt.uncounted, d.IsCounted)
			assert.NotEmpty(t, d.Message)
			assert.NotContains(t, d.Message, "hunter2")
			assert.Nil(t, d.Spec)
		})
	}
}

func owner(account string) func(*Input) {
	return func(in *Input) {
		in.Owners = map[Question]Owner{{Region: "us-east-1", Image: "ami-0123456789abcdef0"}: {Account: account, Unknown: "no one can be asked"}}
	}
}

func architecture(name string) func(*Input) {
	return func(in *Input) {
		in.Resource.Annotations = map[string]string{annotationLabels: "a=b, kubernetes.io/arch=" + name}
	}
}

func TestTheArchitectureDecides(t *testing.T) {
	t.Parallel()
	in := input(t, "AzureMachineProviderSpec", strings.ReplaceAll(azureInstalled, "-gen2", ""))
	d := Decide(in)
	assert.Equal(t, "azureopenshift:aro4:aro4-gen1:9.0.1", d.Wanted.ID, "x86_64 keeps its generation")
	architecture("arm64")(&in)
	d = Decide(in)
	assert.Equal(t, "azureopenshift:aro4:aro4:9.0.1", d.Wanted.ID, "arm64 has only the second")

	in = input(t, "GCPMachineProviderSpec", gcpMachine)
	in.Architecture = ""
	architecture("arm64")(&in)
	assert.Equal(t, "projects/rhcos-cloud/global/images/rhcos-9-x-gcp-aarch64", Decide(in).Wanted.ID)
}

func TestAnAMIOfAPublisherIsUpdated(t *testing.T) {
	t.Parallel()
	const had = "ami-0123456789abcdef0"
	for name, change := range map[string]func(*Input){
		"of Red Hat's account":       owner(awsRHCOS),
		"of Fedora CoreOS's account": owner(awsFCOS),
		"that the resource was given before, and no one can be asked": func(in *Input) {
			owner("")(in)
			in.History = []mcfgv1alpha1.BootImageHistoryDetail{{Image: "ami-00000001"}, {Image: had}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(t, "AWSMachineProviderConfig", awsMachine)
			change(&in)
			d := Decide(in)
			require.Equal(t, ActionUpdate, d.Action, d)
			assert.False(t, d.IsFirst)
		})
	}
	in := input(t, "AWSMachineProviderConfig", awsMachine)
	in.Owners = map[Question]Owner{{Region: "us-east-1", Image: had}: {Unknown: "the secret has no keys"}}
	assert.Equal(t, "the owner of AMI "+had+" is not known: the secret has no keys", Decide(in).Message)
}

func TestTheFirstAMIIsRemembered(t *testing.T) {
	t.Parallel()
	in := input(t, "AWSMachineProviderConfig", strings.Replace(awsMachine, "ami-0123456789abcdef0", "ami-000000069", 1))
	d := Decide(in)
	require.Equal(t, ActionNone, d.Action, d)
	require.True(t, d.IsFirst)
	in.History = Record(nil, &d, 7, at(t0))
	assert.Equal(t, []mcfgv1alpha1.BootImageHistoryDetail{{UpdateTime: at(t0), BootImageVersion: release9, Image: "ami-000000069"}}, in.History)
	assert.False(t, Decide(in).IsFirst)
	in.Stream = "rhel-10"
	assert.Equal(t, ActionUpdate, Decide(in).Action)
	other := input(t, "GCPMachineProviderSpec", strings.Replace(gcpMachine, "rhcos-415-92-202311241643-0-gcp-x86-64", "rhcos-9-x-gcp-x86-64", 1))
	require.Equal(t, ActionNone, Decide(other).Action)
	assert.False(t, Decide(other).IsFirst, "its name says whose it is")
}

func TestEachDatastoreHasATemplateOfItsOwn(t *testing.T) {
	t.Parallel()
	wanted := func(server, center, store string) string {
		in := input(t, "VSphereMachineProviderSpec", fmt.Sprintf(vsphereMachine, "lab-x7-rhcos-us-east-1a"))
		in.Resource.ProviderSpec["workspace"] = map[string]any{"server": server, "datacenter": center, "datastore": store, "folder": "/dc/vm/lab"}
		d := Decide(in)
		require.Equal(t, ActionUpdate, d.Action, d)
		return d.Wanted.ID
	}
	seen := map[string]string{}
	for name, id := range map[string]string{
		"one": wanted("vc", "dc1", "ds1"), "a datastore": wanted("vc", "dc1", "ds2"), "a center": wanted("vc", "dc2", "ds1"), "a server": wanted("vc2", "dc1", "ds1"),
	} {
		assert.Empty(t, seen[id], "%s and another have one template", name)
		seen[id] = name
		assert.Equal(t, release9, versionInName(id))
		assert.LessOrEqual(t, len(id), 80, "the longest name of vSphere")
	}
	again := wanted("vc", "dc1", "ds1")
	assert.Contains(t, seen, again, "failure domains of one datastore share it")
}

func TestAzureKeepsTheGenerationOfHyperV(t *testing.T) {
	t.Parallel()
	const publisher, name = "azureopenshift", "aro4"
	sku := func(sku string) *rhcos.AzureMarketplaceImage {
		return &rhcos.AzureMarketplaceImage{Publisher: publisher, Offer: name, SKU: sku, Version: "419.94.20250101"}
	}
	asPublished := &rhcos.AzureMarketplaceImages{Gen1: sku("aro_419"), Gen2: sku("419-v2")}
	for name, tt := range map[string]struct {
		offer     *rhcos.AzureMarketplaceImages
		has, want string // SKUs; no wanted one is a resource that is skipped
	}{
		"a free image of generation 1":                   {asPublished, "aro_418", "aro_419"},
		"a free image of generation 2":                   {asPublished, "418-v2", "419-v2"},
		"the image of the stream, generation 1":          {asPublished, "aro_419", "aro_419"},
		"a name in another case":                         {asPublished, "ARO_419", "aro_419"},
		"a name that says nothing":                       {asPublished, "rhcos", ""},
		"a name for arm64":                               {asPublished, "418-arm", ""},
		"a paid image of generation 1":                   {&rhcos.AzureMarketplaceImages{Gen1: sku("worker-gen1"), Gen2: sku("worker")}, "worker-gen1", "worker-gen1"},
		"a paid image that was of generation 2 by name":  {&rhcos.AzureMarketplaceImages{Gen1: sku("worker-gen1"), Gen2: sku("worker")}, "worker-gen2", "worker"},
		"a stream that has no generation 1 any more":     {&rhcos.AzureMarketplaceImages{Gen2: sku("419-v2")}, "aro_418", ""},
		"a stream that names both generations alike":     {&rhcos.AzureMarketplaceImages{Gen1: sku("aro_1"), Gen2: sku("aro_2")}, "aro_418", ""},
		"generation 1, by mark, of a stream with only 2": {&rhcos.AzureMarketplaceImages{Gen2: sku("419-v2")}, "418-v1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := metadata("rhel-9", release9, 9)
			s.Architectures["x86_64"].RHELCoreOSExtensions.Marketplace.Azure.NoPurchasePlan = tt.offer
			in := input(t, "AzureMachineProviderSpec", fmt.Sprintf(azureMarketplace, publisher, "aro4", tt.has, "MarketplaceNoPlan"))
			in.Images = images(t, map[string]string{KeyStream: toJSON(t, s)})
			d := Decide(in)
			if tt.want == "" {
				require.Equal(t, ActionSkip, d.Action, d)
				assert.True(t, d.IsCounted)
				return
			}
			require.Equal(t, ActionUpdate, d.Action, d)
			assert.Equal(t, "azureopenshift:aro4:"+tt.want+":419.94.20250101", d.Wanted.ID)
		})
	}
}

func TestMistakesOfTheMetadataAreNamed(t *testing.T) {
	t.Parallel()
	broken := metadata("rhel-9", release9, 9)
	arch := broken.Architectures["x86_64"]
	arch.Images.Gcp.Name = "no name; rm -rf"
	arch.Images.Aws.Regions["us-east-1"] = struct {
		Release string `json:"release"`
		Image   string `json:"image"`
	}{release9, "not-an-ami"}
	for kind, text := range map[string]string{"GCPMachineProviderSpec": gcpMachine, "AWSMachineProviderConfig": awsMachine} {
		in := input(t, kind, text)
		in.Images = images(t, map[string]string{KeyStream: toJSON(t, broken)})
		d := Decide(in)
		assert.Equal(t, ActionFail, d.Action)
		assert.Equal(t, ReasonInvalidMetadata, d.Reason)
	}
}

func TestReleasesThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]string{
		"a path": "../../other/9.6", "nothing": "", "no end": strings.Repeat("9", 129), "another major version": release10,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for kind, text := range map[string]string{
				"GCPMachineProviderSpec": gcpMachine, "VSphereMachineProviderSpec": fmt.Sprintf(vsphereMachine, "/dc/vm/lab/lab-x7-rhcos"),
			} {
				in := input(t, kind, text)
				in.Images = images(t, map[string]string{KeyStreams: toJSON(t, map[string]any{"rhel-9": metadata("rhel-9", release, 9)})})
				d := Decide(in)
				assert.Equal(t, ActionFail, d.Action, kind)
				assert.Equal(t, ReasonInvalidMetadata, d.Reason)
			}
		})
	}
}
