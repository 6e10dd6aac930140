package plan

import (
	"testing"
	"time"

	"github.com/coreos/stream-metadata-go/stream"
	openshiftv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
)

func at(when time.Time) metav1.Time { return metav1.NewTime(when) }

func TestParseRefusesBrokenMetadata(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		data map[string]string
		want string
	}{
		"no key":                  {map[string]string{"other": "x"}, `it has neither the key "stream" nor the key "streams"`},
		"no JSON":                 {map[string]string{KeyStream: "{"}, `reading key "stream": unexpected end of JSON input`},
		"no object of streams":    {map[string]string{KeyStreams: "[]"}, `reading key "streams": json: cannot unmarshal array`},
		"a stream of nothing":     {map[string]string{KeyStreams: `{"rhel-9":null}`}, `stream "rhel-9" has no architectures`},
		"metadata of nothing":     {map[string]string{KeyStream: `{}`}, `reading key "stream": it has no architectures`},
		"architectures of a word": {map[string]string{KeyStream: `{"architectures":"x86_64"}`}, `cannot unmarshal string`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(tt.data, majors, variants)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestAStreamIsNeverTakenForAnother(t *testing.T) {
	t.Parallel()
	const releaseNvidia = "10.2.20260801-nvidia"
	nine, ten, nvidia := metadata("rhel-9", release9, 9), metadata("rhel-10", release10, 10), metadata("rhel-10-nvidia", releaseNvidia, 10)
	legacy := map[string]string{KeyStream: toJSON(t, metadata("rhcos-4.21", release9, 9))}
	several := map[string]string{KeyStreams: toJSON(t, map[string]*stream.Stream{"rhel-9": nine, "rhel-10": ten})}
	variants := map[string]string{KeyStreams: toJSON(t, map[string]*stream.Stream{"rhel-9": nine, "rhel-10": ten, "rhel-10-nvidia": nvidia})}
	onlyVariant := map[string]string{KeyStreams: toJSON(t, map[string]*stream.Stream{"rhel-9": nine, "rhel-10-nvidia": nvidia})}
	twins := map[string]string{KeyStreams: toJSON(t, map[string]*stream.Stream{"rhel-9": nine, "rhel9-coreos": nine})}
	for name, tt := range map[string]struct {
		data   map[string]string
		stream string
		want   string // the release of the images; empty is none
	}{
		"by name":                                {several, "rhel-10", release10},
		"by major version":                       {several, "rhel9-coreos", release9},
		"none of the major version":              {several, "rhel-11", ""},
		"one stream, of the same major version":  {legacy, "rhel9-coreos", release9},
		"one stream, of another major version":   {legacy, "rhel-10", ""},
		"one stream, a name that says no more":   {legacy, "fedora-coreos", release9},
		"several streams, and an unknown name":   {several, "fedora-coreos", ""},
		"two of the same major version":          {twins, "rhel9-coreos", release9},
		"a variant":                              {variants, "rhel-10-nvidia", releaseNvidia},
		"a variant, written differently":         {variants, "rhel10-coreos-nvidia", releaseNvidia},
		"a variant without images of its own":    {variants, "rhel-9-nvidia", release9},
		"the plain stream beside a variant":      {variants, "rhel10-coreos", release10},
		"a variant is not the plain stream":      {onlyVariant, "rhel-10", ""},
		"another variant":                        {onlyVariant, "rhel-10-edge", ""},
		"no name and one stream":                 {legacy, "", release9},
		"no name and several streams, none main": {several, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := images(t, tt.data).find(tt.stream)
			if tt.want == "" {
				require.Nil(t, found)
				return
			}
			require.NotNil(t, found)
			require.Equal(t, tt.want, found.Architectures["x86_64"].Artifacts["vmware"].Release)
		})
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Version{
		"415.92.202311241643-0": {OCP: MajorMinor{4, 15}, RHEL: MajorMinor{9, 2}},
		"48.84.202109241901-0":  {OCP: MajorMinor{4, 8}, RHEL: MajorMinor{8, 4}},
		"421.100.20260101-0":    {OCP: MajorMinor{4, 21}, RHEL: MajorMinor{10, 0}},
		release9:                {RHEL: MajorMinor{9, 6}},
		release10:               {RHEL: MajorMinor{10, 1}},
		"unknown":               {},
		"":                      {},
		"4.20.1":                {},
	} {
		assert.Equal(t, want, ParseVersion(text), text)
	}
	assert.Equal(t, "415.92.202311241643-0", versionInName("projects/rhcos-cloud/global/images/rhcos-415-92-202311241643-0-gcp-x86-64"))
	assert.Equal(t, release9, versionInName("/dc/vm/lab-x7-rhcos-"+release9))
	assert.Empty(t, versionInName("rhcos-9-6-20250826-12345678901"), "the API takes no more than 21 characters")
	assert.True(t, IsRHCOS("415.92.202311241643-0"))
	assert.False(t, IsRHCOS("9.6.20250826-12345678901"))
	assert.Negative(t, MajorMinor{9, 10}.Compare(MajorMinor{10, 0}))
	assert.Positive(t, MajorMinor{9, 10}.Compare(MajorMinor{9, 2}))
}

func TestAFightIsSeenAndForgotten(t *testing.T) {
	t.Parallel()
	in := input(t, "GCPMachineProviderSpec", gcpMachine)
	for i := range fightAfter {
		d := Decide(in)
		require.Equal(t, ActionUpdate, d.Action, "update %d", i)
		in.History = Record(in.History, &d, 3, at(in.Now))
		in.Now = in.Now.Add(time.Minute)
	}
	require.Len(t, in.History, 1+fightAfter)
	assert.Equal(t, "415.92.202311241643-0", in.History[0].BootImageVersion, "where it came from")
	d := Decide(in)
	require.Equal(t, ReasonHotLoop, d.Reason)
	require.Equal(t, ActionFail, d.Action)

	in.Stream = "rhel-10"
	assert.Equal(t, ActionUpdate, Decide(in).Action, "another image is another matter")
	in.Stream = "rhel-9"
	in.Now = in.Now.Add(fightWithin)
	assert.Equal(t, ActionUpdate, Decide(in).Action, "it is tried again later")
}

func TestTheHistoryEnds(t *testing.T) {
	t.Parallel()
	var history []mcfgv1alpha1.BootImageHistoryDetail
	for range maxHistory + 5 {
		history = Record(history, &Decision{Current: "a", Wanted: Image{ID: "b", Version: "2"}}, 1, at(t0))
	}
	require.Len(t, history, maxHistory)
}

func TestManagers(t *testing.T) {
	t.Parallel()
	mode := func(m operatorv1.ManagedBootImages) string {
		if len(m.MachineManagers) == 0 {
			return ""
		}
		return string(m.MachineManagers[0].Resource) + " " + string(m.MachineManagers[0].Selection.Mode)
	}
	nothing := operatorv1.ManagedBootImages{}
	for platform, want := range map[string]string{
		"AWS": "machinesets All", "GCP": "machinesets All", "Azure": "machinesets All", "VSphere": "machinesets All",
		"BareMetal": "machinesets None", "None": "machinesets None", "": "",
	} {
		assert.Equal(t, want, mode(Managers(nothing, platform, "")), platform)
	}
	assert.Equal(t, "machinesets None", mode(Managers(nothing, "Azure", "AzureStackCloud")))
	asked := operatorv1.ManagedBootImages{MachineManagers: []operatorv1.MachineManager{
		{Resource: operatorv1.MachineDeployments, APIGroup: operatorv1.ClusterAPI, Selection: openshiftv1.MachineManagerSelector{
			Mode: openshiftv1.Partial, Partial: &openshiftv1.PartialSelector{
				MachineResourceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"boot-image": "managed"}},
			},
		}},
		{Resource: operatorv1.MachineSets, APIGroup: operatorv1.MachineAPI, Selection: openshiftv1.MachineManagerSelector{Mode: openshiftv1.All}},
		{Resource: operatorv1.ControlPlaneMachineSets, APIGroup: operatorv1.MachineAPI, Selection: openshiftv1.MachineManagerSelector{Mode: openshiftv1.None}},
	}}
	require.Equal(t, asked, Managers(asked, "AWS", ""))
	for _, tt := range []struct {
		resource, group string
		labels          map[string]string
		want            bool
	}{
		{"machinesets", "machine.openshift.io", nil, true},
		{"machinesets", "cluster.x-k8s.io", nil, false},
		{"controlplanemachinesets", "machine.openshift.io", nil, false},
		{"machinedeployments", "cluster.x-k8s.io", nil, false},
		{"machinedeployments", "cluster.x-k8s.io", map[string]string{"boot-image": "managed"}, true},
	} {
		got, err := IsManaged(asked, tt.resource, tt.group, tt.labels)
		require.NoError(t, err)
		assert.Equal(t, tt.want, got, tt)
	}
	asked.MachineManagers[0].Selection.Partial.MachineResourceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Odd"}}
	_, err := IsManaged(asked, "machinedeployments", "cluster.x-k8s.io", nil)
	require.Error(t, err)
}

func TestUnstable(t *testing.T) {
	t.Parallel()
	pool := func(machines, updated int32) *mcfgv1.MachineConfigPool {
		p := &mcfgv1.MachineConfigPool{}
		p.Name = "master"
		p.Status.MachineCount, p.Status.UpdatedMachineCount = machines, updated
		return p
	}
	for name, tt := range map[string]struct {
		p              Progress
		release, stamp string
		isStable       bool
	}{
		"a completed update":                      {Progress{HasClusterVersion: true, IsCompleted: true, Desired: "4.21.0"}, "4.21.0", "", true},
		"an update with a node that has it":       {Progress{HasClusterVersion: true, Desired: "4.21.0"}, "4.21.0", "4.21.0", true},
		"an update with the stamp of the last":    {Progress{HasClusterVersion: true, Desired: "4.21.0"}, "4.21.0", "4.20.0", false},
		"an update without a stamp":               {Progress{HasClusterVersion: true, Desired: "4.21.0"}, "4.21.0", "", false},
		"boot images of another release":          {Progress{HasClusterVersion: true, IsCompleted: true, Desired: "4.21.0"}, "4.22.0", "", false},
		"plain Kubernetes":                        {Progress{}, "", "", true},
		"plain Kubernetes, an updated node":       {Progress{ControlPlane: pool(3, 1)}, "", "", true},
		"plain Kubernetes, no updated node":       {Progress{ControlPlane: pool(3, 0)}, "", "", false},
		"plain Kubernetes, a pool without nodes":  {Progress{ControlPlane: pool(0, 0)}, "", "", true},
		"boot images that name no release at all": {Progress{HasClusterVersion: true, IsCompleted: true, Desired: "4.21.0"}, "", "", true},
	} {
		assert.Equal(t, tt.isStable, Unstable(tt.p, &BootImages{Release: tt.release, Stamp: tt.stamp}) == "", name)
	}
}

func TestTheWaveWaitsForItsCanary(t *testing.T) {
	t.Parallel()
	soak := time.Hour
	w := Wave{First: "a"}
	assert.Zero(t, w.Wait("a", t0, soak), "the first goes at once")
	assert.Equal(t, soak, w.Wait("b", t0, soak), "it has not gone yet")
	assert.Zero(t, w.Wait("b", t0, 0), "no one is to wait")
	w = Wave{First: "a", Since: t0}
	assert.Zero(t, w.Wait("a", t0, soak))
	assert.Equal(t, 50*time.Minute, w.Wait("b", t0.Add(10*time.Minute), soak))
	assert.Zero(t, w.Wait("b", t0.Add(2*time.Hour), soak), "a canary that no one scales holds up nothing for ever")
	w.IsProven = true
	assert.Zero(t, w.Wait("b", t0, soak))
}

func TestTheCanaryIsTheSmallestWithMachines(t *testing.T) {
	t.Parallel()
	masters, empty := Candidate{"ControlPlaneMachineSet a", 1, true}, Candidate{"MachineSet b", 0, false}
	large, small, twin := Candidate{"MachineSet c", 9, false}, Candidate{"MachineSet z", 2, false}, Candidate{"MachineSet y", 2, false}
	for name, tt := range map[string]struct {
		all  []Candidate
		want string
	}{
		"workers before masters":           {[]Candidate{masters, large}, large.Resource},
		"the smallest":                     {[]Candidate{masters, large, small}, small.Resource},
		"the first of the smallest":        {[]Candidate{small, twin, large}, twin.Resource},
		"one with machines before none":    {[]Candidate{empty, masters}, masters.Resource},
		"one without machines if all are":  {[]Candidate{empty}, empty.Resource},
		"no one where no one wants to":     {nil, ""},
		"one with machines that is larger": {[]Candidate{empty, large}, large.Resource},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, Canary(tt.all))
		})
	}
}
