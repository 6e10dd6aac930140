package vsphere

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

const (
	machines = "openshift-machine-api"
	template = "/DC0/vm/lab/lab-x7-rhcos-9.6.20250826-1"
	password = "hunter2"
)

// description is the OVF descriptor of a machine with one disk and one network.
const description = `<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
  xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
  xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData">
  <References><File ovf:href="disk.vmdk" ovf:id="file1" ovf:size="4"/></References>
  <DiskSection><Info>Disks</Info><Disk ovf:capacity="16" ovf:capacityAllocationUnits="byte * 2^20" ovf:diskId="vmdisk1" ovf:fileRef="file1"/></DiskSection>
  <NetworkSection><Info>Networks</Info><Network ovf:name="its network"><Description>any</Description></Network></NetworkSection>
  <VirtualSystem ovf:id="rhcos"><Info>Red Hat Enterprise Linux CoreOS</Info><VirtualHardwareSection><Info>Hardware</Info>
    <System><vssd:ElementName>Hardware</vssd:ElementName><vssd:InstanceID>0</vssd:InstanceID><vssd:VirtualSystemType>vmx-15</vssd:VirtualSystemType></System>
    <Item><rasd:ElementName>scsi</rasd:ElementName><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceSubType>lsilogic</rasd:ResourceSubType><rasd:ResourceType>6</rasd:ResourceType></Item>
    <Item><rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:ElementName>disk</rasd:ElementName><rasd:HostResource>ovf:/disk/vmdisk1</rasd:HostResource>
      <rasd:InstanceID>4</rasd:InstanceID><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
    <Item><rasd:Connection>its network</rasd:Connection><rasd:ElementName>net</rasd:ElementName><rasd:InstanceID>5</rasd:InstanceID>
      <rasd:ResourceSubType>vmxnet3</rasd:ResourceSubType><rasd:ResourceType>10</rasd:ResourceType></Item>
  </VirtualHardwareSection></VirtualSystem>
</Envelope>`

// archive is an OVA of files, in their order.
func archive(t *testing.T, files ...[2]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: f[0], Size: int64(len(f[1])), Mode: 0o644}))
		_, err := w.Write([]byte(f[1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func whole(t *testing.T) []byte {
	t.Helper()
	return archive(t, [2]string{"rhcos.ovf", description}, [2]string{"rhcos.mf", "SHA256(...)"}, [2]string{"disk.vmdk", "disk"})
}

// lab is a vCenter, simulated, with a folder, and an Importer with the credentials for it.
type lab struct {
	*Importer
	t      *testing.T
	find   *find.Finder
	server string
	image  plan.Image
	secret *corev1.Secret
}

// newLab starts a simulator of vCenter. It has state for the whole process, so that tests with one
// do not run side by side.
func newLab(t *testing.T, ova []byte) *lab {
	t.Helper()
	model := simulator.VPX()
	require.NoError(t, model.Create())
	t.Cleanup(model.Remove)
	model.Service.TLS = new(tls.Config)
	model.Service.Listen = &url.URL{User: url.UserPassword("admin", password)}
	vcenter := model.Service.NewServer()
	t.Cleanup(vcenter.Close)
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if ova == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write(ova)
	}))
	t.Cleanup(mirror.Close)

	sum := sha256.Sum256(ova)
	l := &lab{
		t: t, server: vcenter.URL.Host,
		image: plan.Image{ID: template, Version: "9.6.20250826-1", Upload: &plan.Upload{URL: mirror.URL + "/rhcos.ova", SHA256: hex.EncodeToString(sum[:])}},
	}
	l.secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: machines, Name: "vsphere-cloud-credentials"},
		Data:       map[string][]byte{l.server + ".username": []byte("admin"), l.server + ".password": []byte(password)},
	}
	l.Importer = New(fake.NewClientBuilder().WithObjects(l.secret).Build(), mirror.Client())
	l.roots = x509.NewCertPool()
	l.roots.AddCert(vcenter.Certificate())

	vc, logout, err := l.login(t.Context(), l.server, url.UserPassword("admin", password))
	require.NoError(t, err)
	t.Cleanup(logout)
	l.find = find.NewFinder(vc)
	center, err := l.find.Datacenter(t.Context(), "DC0")
	require.NoError(t, err)
	l.find.SetDatacenter(center)
	folders, err := center.Folders(t.Context())
	require.NoError(t, err)
	_, err = folders.VmFolder.CreateFolder(t.Context(), "lab")
	require.NoError(t, err)
	return l
}

// spec is the provider specification of a MachineSet.
func (l *lab) spec() plan.Spec {
	return plan.Spec{
		"kind": "VSphereMachineProviderSpec", "template": "/DC0/vm/lab/lab-x7-rhcos", "credentialsSecret": map[string]any{"name": l.secret.Name},
		"network":   map[string]any{"devices": []any{map[string]any{"networkName": "DC0_DVPG0"}}},
		"workspace": map[string]any{"server": l.server, "datacenter": "DC0", "datastore": "LocalDS_0", "folder": "/DC0/vm/lab", "resourcePool": "/DC0/host/DC0_C0/Resources"},
	}
}

func workspaceOf(spec plan.Spec) map[string]any {
	w, _ := spec["workspace"].(map[string]any)
	return w
}

func (l *lab) run(spec plan.Spec) error {
	return l.Import(l.t.Context(), machines, spec, l.image)
}

// all are the names of what is in the folder.
func (l *lab) all() []string {
	l.t.Helper()
	found, err := l.find.ManagedObjectListChildren(l.t.Context(), "/DC0/vm/lab")
	require.NoError(l.t, err)
	var out []string
	for _, each := range found {
		out = append(out, each.Path)
	}
	return out
}

func (l *lab) vm(name string) (*object.VirtualMachine, mo.VirtualMachine) {
	l.t.Helper()
	vm, err := l.find.VirtualMachine(l.t.Context(), name)
	require.NoError(l.t, err)
	var is mo.VirtualMachine
	require.NoError(l.t, vm.Properties(l.t.Context(), vm.Reference(), []string{"config", "network"}, &is))
	return vm, is
}

func TestATemplateIsImported(t *testing.T) {
	l := newLab(t, whole(t))
	require.NoError(t, l.run(l.spec()))
	assert.Equal(t, []string{template}, l.all())
	_, is := l.vm(template)
	assert.True(t, is.Config.Template)
	network, err := l.find.Network(t.Context(), "DC0_DVPG0")
	require.NoError(t, err)
	assert.Contains(t, is.Network, network.Reference(), "its network is that of the machines")

	l.http = nil // nothing is downloaded a second time
	require.NoError(t, l.run(l.spec()))

	byName := l.spec() // is found where it is
	workspaceOf(byName)["folder"] = "/DC0/vm"
	image := l.image
	image.ID = "lab-x7-rhcos-9.6.20250826-1"
	require.NoError(t, l.Import(t.Context(), machines, byName, image))
}

func TestUnfinishedImportIsRemoved(t *testing.T) {
	l := newLab(t, whole(t))
	require.NoError(t, l.run(l.spec()))
	vm, _ := l.vm(template)
	task, err := vm.Rename(t.Context(), "lab-x7-rhcos-9.6.20250826-1.importing")
	require.NoError(t, err)
	require.NoError(t, task.Wait(t.Context()))
	require.NoError(t, l.run(l.spec()))
	again, _ := l.vm(template)
	assert.NotEqual(t, vm.Reference(), again.Reference(), "it was made anew")
	assert.Equal(t, []string{template}, l.all())
}

func TestImportsThatFailLeaveNothing(t *testing.T) {
	workspace := func(field, value string) func(*lab, plan.Spec) {
		return func(_ *lab, spec plan.Spec) {
			workspaceOf(spec)[field] = value
		}
	}
	for name, tt := range map[string]struct {
		ova       []byte
		change    func(*lab, plan.Spec)
		want      string
		isPassing bool
	}{
		"another checksum":        {whole(t), func(l *lab, _ plan.Spec) { l.image.Upload.SHA256 = "0" }, "and the stream says 0", false},
		"a file that is missing":  {archive(t, [2]string{"rhcos.ovf", description}), nil, "it lacks 1 files that its description names", false},
		"no description":          {archive(t, [2]string{"disk.vmdk", "disk"}), nil, `it begins with "disk.vmdk" of 4 bytes`, false},
		"a description of a poem": {archive(t, [2]string{"rhcos.ovf", "roses are red"}), nil, "description", false},
		"no archive":              {[]byte("a web page"), nil, "reading the archive", true},
		"a mirror that is down":   {nil, nil, "the server answers 503", true},
		"no workspace":            {whole(t), func(_ *lab, spec plan.Spec) { delete(spec, "workspace") }, "its workspace does not name a server", false},
		"an unknown datacenter":   {whole(t), workspace("datacenter", "DC9"), `finding datacenter "DC9" of its workspace`, false},
		"an unknown folder":       {whole(t), func(l *lab, _ plan.Spec) { l.image.ID = "/DC0/vm/other/lab-x7-rhcos-1" }, `finding folder "/DC0/vm/other"`, false},
		"an unknown datastore":    {whole(t), workspace("datastore", "none"), `finding datastore "none"`, false},
		"an unknown pool":         {whole(t), workspace("resourcePool", "/DC0/host/none"), `finding resource pool "/DC0/host/none"`, false},
		"no credentials":          {whole(t), func(_ *lab, spec plan.Spec) { delete(spec, "credentialsSecret") }, "names no secret with credentials", false},
		"credentials of another server": {
			whole(t), workspace("server", "vc.example.com"), `secret "openshift-machine-api/vsphere-cloud-credentials" has no user and password for "vc.example.com"`, false,
		},
		"a secret that is not there": {
			whole(t), func(_ *lab, spec plan.Spec) { spec["credentialsSecret"] = map[string]any{"name": "none"} }, `secret "openshift-machine-api/none" with the credentials for vCenter cannot be read (NotFound)`, false,
		},
		"a password that is wrong": {
			whole(t), func(l *lab, _ plan.Spec) {
				l.secret.Data[l.server+".password"] = []byte("hunter3")
				l.reader = fake.NewClientBuilder().WithObjects(l.secret).Build()
			}, "logging in to vCenter", true,
		},
		"an unknown authority": {whole(t), func(l *lab, _ plan.Spec) { l.roots = x509.NewCertPool() }, "certificate", true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, tt.ova)
			spec := l.spec()
			if tt.change != nil {
				tt.change(l, spec)
			}
			err := l.run(spec)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, !tt.isPassing, fault.IsTerminal(err), err)
			assert.NotContains(t, fmt.Sprint(err), "hunter", "passwords are in no message")
			assert.Empty(t, l.all())
		})
	}
}

func TestAMachineUnderTheNameIsLeftAlone(t *testing.T) {
	l := newLab(t, whole(t))
	vm, _ := l.vm("DC0_C0_RP0_VM0")
	l.image.ID = "DC0_C0_RP0_VM0"
	require.ErrorContains(t, l.run(l.spec()), `"DC0_C0_RP0_VM0" is a virtual machine and no template`)
	_, err := l.find.ObjectReference(context.WithoutCancel(t.Context()), vm.Reference())
	require.NoError(t, err)
}
