package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
)

func reading(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme, err := survey.Scheme()
	require.NoError(t, err)
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func TestStreamsOfACluster(t *testing.T) {
	t.Parallel()
	object := &mcfgv1.OSImageStream{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	object.Status.DefaultStream = "rhel-10"
	object.Status.AvailableStreams = []mcfgv1.OSImageStreamSet{
		{Name: "rhel-10", OSImage: "registry.example.com/os@sha256:1111111111111111111111111111111111111111111111111111111111111111"},
		{Name: "rhel-9", Lifecycle: mcfgv1.StreamDeprecated, EndOfLifeDate: "2027-05-31", OSImage: "registry.example.com/os:9"},
	}
	object.Status.UnusableStreams = []mcfgv1.UnusableOSImageStream{{Name: "half\x1b[31m", Reason: "ExtensionsImageMissing", Message: "add it"}}
	object.Status.Conditions = []metav1.Condition{{Type: mcfgv1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "SourceFailed", Message: "no answer"}}
	on := func(pool, stream string) *mcfgv1.MachineConfigPool {
		p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: pool}}
		p.Status.OSImageStream.Name = stream
		return p
	}
	c := reading(t, object, on("worker", "rhel-10"), on("infra", "rhel-10"), on("old", "rhel-8"), on("new", ""))
	found, read, err := readStreams(t.Context(), c)
	require.NoError(t, err)
	printed := func(format string) string {
		o := &streamsOptions{}
		o.format.Value = format
		var out bytes.Buffer
		require.NoError(t, o.printCluster(found, read, &out))
		return out.String()
	}
	assert.Equal(t, `STREAM             LIFECYCLE                    POOLS          OS IMAGE                   EXTENSIONS
rhel-10 (default)  Supported                    infra, worker  111111111111               -
rhel-9             Deprecated until 2027-05-31  -              registry.example.com/os:9  -
rhel-8             Removed                      old            -                          -
half [31m can't be used: ExtensionsImageMissing: add it
The sources of streams: SourceFailed: no answer
`, printed("text"))
	var decoded clusterStreams
	require.NoError(t, json.Unmarshal([]byte(printed("json")), &decoded))
	assert.Equal(t, []string{"infra", "worker"}, decoded.Streams[0].Pools)
	assert.True(t, decoded.Streams[0].Default)
	assert.Contains(t, printed("yaml"), "name: rhel-9\n")
	assert.Equal(t, string(object.Status.AvailableStreams[0].OSImage)+"\n", printed("os-image"))
	_, _, err = readStreams(t.Context(), reading(t))
	require.ErrorContains(t, err, "the cluster has no OSImageStream cluster")
}

func TestBootImagesOfACluster(t *testing.T) {
	t.Parallel()
	history := &mcfgv1alpha1.BootImageHistory{ObjectMeta: metav1.ObjectMeta{Namespace: "machines", Name: "a-machineset"}}
	history.Spec.MachineResourceReference = mcfgv1alpha1.MachineResourceReference{Name: "a", Resource: "MachineSet", APIGroup: "machine.openshift.io"}
	history.Status.Details = []mcfgv1alpha1.BootImageHistoryDetail{{BootImageVersion: "9.4", Image: "ami-1"}, {BootImageVersion: "9.6", Image: "ami-2", Stream: "rhel-9"}}
	history.Status.Conditions = []metav1.Condition{{Type: mcfgv1.ConditionReady, Status: metav1.ConditionFalse}, {Type: mcfgv1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: "WaitingForCanary", Message: "waits for b"}}
	machines := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	machines.Status.Conditions = []metav1.Condition{
		{Type: "BootImageUpdateProgressing", Status: metav1.ConditionTrue, Message: "Reconciled 1 of 2 MAPI MachineSets (1 skipped)"}, {Type: "Ready", Status: metav1.ConditionTrue, Message: "other"},
	}
	found, err := readBootImages(t.Context(), reading(t, history, machines))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, found.text(&out))
	assert.Equal(t, `RESOURCE               VERSION  STREAM  READY  IMAGE  MESSAGE
MachineSet machines/a  9.6      rhel-9  no     ami-2  WaitingForCanary: waits for b
BootImageUpdateProgressing is True: Reconciled 1 of 2 MAPI MachineSets (1 skipped)
`, out.String())
	found, err = readBootImages(t.Context(), reading(t))
	require.NoError(t, err)
	out.Reset()
	require.NoError(t, found.text(&out))
	assert.Equal(t, "no machine resource has had its boot image updated\n", out.String())
}
