package vsphere

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// Reasons of errors that a person has to correct.
const (
	reasonWorkspace   = "InvalidWorkspace"
	reasonCredentials = "CredentialsUnreadable"
	reasonNameTaken   = "TemplateNameTaken"
	reasonImage       = "InvalidImage"
)

// unfinished is what the names of templates end with that are being imported.
const unfinished = ".importing"

// Importer imports templates.
type Importer struct {
	reader client.Reader
	http   *http.Client
	// roots are the authorities that sign for vCenter; nil is those of the system.
	roots *x509.CertPool
}

// New makes an Importer that reads credentials with a reader that has no cache, and downloads
// images with a client.
func New(reader client.Reader, httpClient *http.Client) *Importer {
	return &Importer{reader: reader, http: httpClient}
}

// Import makes the template that an image is wanted as, where machines of a provider specification
// look for it. Where it is already, there is nothing to do.
func (i *Importer) Import(ctx context.Context, namespace string, spec plan.Spec, image plan.Image) error {
	var machine machinev1beta1.VSphereMachineProviderSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &machine); err != nil {
		return fault.NewTerminal(reasonWorkspace, fmt.Errorf("reading the provider specification: %w", err))
	}
	w := machine.Workspace
	if w == nil || w.Server == "" || w.Datacenter == "" || w.Datastore == "" || w.Folder == "" {
		return fault.NewTerminal(reasonWorkspace, errors.New("its workspace does not name a server, a datacenter, a datastore and a folder to import the boot image into"))
	}
	user, err := i.credentials(ctx, namespace, &machine)
	if err != nil {
		return err
	}
	vc, logout, err := i.login(ctx, w.Server, user)
	if err != nil {
		return fmt.Errorf("logging in to vCenter %q: %w", w.Server, err)
	}
	defer logout()
	at, err := newPlace(ctx, vc, &machine, image.ID)
	if err != nil {
		return err
	}
	isThere, err := at.has(ctx, image.ID)
	if err != nil || isThere {
		return err
	}
	if err := at.removeUnfinished(ctx); err != nil {
		return err
	}
	if err := i.fetch(ctx, at, image.Upload); err != nil {
		return fault.Join(err, at.removeUnfinished(ctx))
	}
	return at.finish(ctx)
}

// credentials are the user and the password for a server.
func (i *Importer) credentials(ctx context.Context, namespace string, machine *machinev1beta1.VSphereMachineProviderSpec) (*url.Userinfo, error) {
	if machine.CredentialsSecret == nil {
		return nil, fault.NewTerminal(reasonCredentials, errors.New("its provider specification names no secret with credentials"))
	}
	key := client.ObjectKey{Namespace: namespace, Name: machine.CredentialsSecret.Name}
	var secret corev1.Secret
	if err := i.reader.Get(ctx, key, &secret); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil, fault.NewTerminal(reasonCredentials, fmt.Errorf("secret %q with the credentials for vCenter cannot be read (%s)", key, apierrors.ReasonForError(err)))
		}
		return nil, fmt.Errorf("reading secret %q: %w", key, err)
	}
	server := machine.Workspace.Server
	user, password := string(secret.Data[server+".username"]), string(secret.Data[server+".password"])
	if user == "" || password == "" {
		return nil, fault.NewTerminal(reasonCredentials, fmt.Errorf("secret %q has no user and password for %q", key, server))
	}
	return url.UserPassword(user, password), nil
}

// login begins a session.
func (i *Importer) login(ctx context.Context, server string, user *url.Userinfo) (*vim25.Client, func(), error) {
	transport := soap.NewClient(&url.URL{Scheme: "https", Host: server, Path: vim25.Path}, false)
	if i.roots != nil {
		transport.DefaultTransport().TLSClientConfig.RootCAs = i.roots
	}
	vc, err := vim25.NewClient(ctx, transport)
	if err != nil {
		return nil, nil, err
	}
	sessions := session.NewManager(vc)
	if err := sessions.Login(ctx, user); err != nil {
		return nil, nil, err
	}
	return vc, func() { _ = sessions.Logout(context.WithoutCancel(ctx)) }, nil
}

// place is where in the inventory a template is made.
type place struct {
	vc      *vim25.Client
	find    *find.Finder
	folder  *object.Folder
	pool    *object.ResourcePool
	store   *object.Datastore
	network object.NetworkReference // nil is what vSphere chooses
	name    string
}

// newPlace finds what a workspace names. A template that is named by its path lies there, others in
// the folder of the workspace.
func newPlace(ctx context.Context, vc *vim25.Client, machine *machinev1beta1.VSphereMachineProviderSpec, template string) (*place, error) {
	w := machine.Workspace
	at := &place{vc: vc, find: find.NewFinder(vc), name: path.Base(template)}
	wrong := func(what, name string, err error) error {
		err = fmt.Errorf("finding %s %q of its workspace: %w", what, name, err)
		if isMissing(err) {
			return fault.NewTerminal(reasonWorkspace, err)
		}
		return err
	}
	center, err := at.find.Datacenter(ctx, w.Datacenter)
	if err != nil {
		return nil, wrong("datacenter", w.Datacenter, err)
	}
	at.find.SetDatacenter(center)
	folder := w.Folder
	if at.name != template {
		folder = path.Dir(template)
	}
	if at.folder, err = at.find.Folder(ctx, folder); err != nil {
		return nil, wrong("folder", folder, err)
	}
	if at.store, err = at.find.Datastore(ctx, w.Datastore); err != nil {
		return nil, wrong("datastore", w.Datastore, err)
	}
	if at.pool, err = at.find.ResourcePoolOrDefault(ctx, w.ResourcePool); err != nil {
		return nil, wrong("resource pool", w.ResourcePool, err)
	}
	if devices := machine.Network.Devices; len(devices) > 0 && devices[0].NetworkName != "" {
		if at.network, err = at.find.Network(ctx, devices[0].NetworkName); err != nil {
			return nil, wrong("network", devices[0].NetworkName, err)
		}
	}
	return at, nil
}

// isMissing reports whether what was looked for is not there, or is not the only one.
func isMissing(err error) bool {
	_, none := errors.AsType[*find.NotFoundError](err)
	_, several := errors.AsType[*find.MultipleFoundError](err)
	_, noDefault := errors.AsType[*find.DefaultMultipleFoundError](err)
	return none || several || noDefault
}

// has reports whether the template is there. It is looked for as the Machine API does.
func (at *place) has(ctx context.Context, template string) (bool, error) {
	vm, err := at.find.VirtualMachine(ctx, template)
	if _, none := errors.AsType[*find.NotFoundError](err); none {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for template %q: %w", template, err)
	}
	isTemplate, err := vm.IsTemplate(ctx)
	if err != nil {
		return false, fmt.Errorf("looking at template %q: %w", template, err)
	}
	if !isTemplate {
		return false, fault.NewTerminal(reasonNameTaken, fmt.Errorf("%q is a virtual machine and no template; rename it, or have it become one", template))
	}
	return true, nil
}

// removeUnfinished removes what an import left behind that did not come to its end.
func (at *place) removeUnfinished(ctx context.Context) error {
	vm, err := at.unfinished(ctx)
	if err != nil || vm == nil {
		return err
	}
	task, err := vm.Destroy(ctx)
	if err == nil {
		err = task.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("removing the unfinished template %q: %w", at.name+unfinished, err)
	}
	return nil
}

// unfinished is the template under the name that it has while it is imported; nil where there is
// none.
func (at *place) unfinished(ctx context.Context) (*object.VirtualMachine, error) {
	vm, err := at.find.VirtualMachine(ctx, path.Join(at.folder.InventoryPath, at.name+unfinished))
	if _, none := errors.AsType[*find.NotFoundError](err); none {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the unfinished template %q: %w", at.name+unfinished, err)
	}
	return vm, nil
}

// finish makes what was imported a template, and gives it its name.
func (at *place) finish(ctx context.Context) error {
	vm, err := at.unfinished(ctx)
	if err == nil && vm == nil {
		err = errors.New("it is not there")
	}
	if err == nil {
		err = vm.MarkAsTemplate(ctx)
	}
	if err != nil {
		return fmt.Errorf("making %q a template: %w", at.name, err)
	}
	task, err := vm.Rename(ctx, at.name)
	if err == nil {
		err = task.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("naming template %q: %w", at.name, err)
	}
	return nil
}

// host is one that the template can be made on: without DRS, vSphere does not choose one.
func (at *place) host(ctx context.Context) (*object.HostSystem, error) {
	owner, err := at.pool.Owner(ctx)
	if err != nil {
		return nil, fmt.Errorf("finding the hosts of the resource pool: %w", err)
	}
	var cluster mo.ComputeResource
	if err := object.NewCommon(at.vc, owner.Reference()).Properties(ctx, owner.Reference(), []string{"host"}, &cluster); err != nil {
		return nil, fmt.Errorf("finding the hosts of the resource pool: %w", err)
	}
	for _, ref := range cluster.Host {
		var is mo.HostSystem
		host := object.NewHostSystem(at.vc, ref)
		if err := host.Properties(ctx, ref, []string{"runtime", "datastore"}, &is); err != nil {
			return nil, fmt.Errorf("looking at host %q: %w", ref.Value, err)
		}
		if is.Runtime.ConnectionState != types.HostSystemConnectionStateConnected || is.Runtime.InMaintenanceMode {
			continue
		}
		for _, store := range is.Datastore {
			if store == at.store.Reference() {
				return host, nil
			}
		}
	}
	return nil, fmt.Errorf("no host of the resource pool is connected and has datastore %q", cmp.Or(at.store.Name(), at.store.Reference().Value))
}
