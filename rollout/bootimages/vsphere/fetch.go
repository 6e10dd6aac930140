package vsphere

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/vmware/govmomi/nfc"
	"github.com/vmware/govmomi/ovf"
	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// maxDescriptor is how long the description in an image may be.
const maxDescriptor = 1 << 20

// fetch downloads an image, an archive whose first file describes the others, and imports it on the
// way: nothing of it is stored here.
func (i *Importer) fetch(ctx context.Context, at *place, from *plan.Upload) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.URL, http.NoBody)
	if err != nil {
		return fault.NewTerminal(reasonImage, errors.New("the stream's image of vSphere has no valid location"))
	}
	response, err := i.http.Do(request)
	if err != nil {
		return fmt.Errorf("downloading boot image %q: %w", from.URL, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("downloading boot image %q: the server answers %s", from.URL, response.Status)
	}
	sum := sha256.New()
	body := io.TeeReader(response.Body, sum)
	lease, err := at.load(ctx, tar.NewReader(body))
	if err == nil {
		_, err = io.Copy(io.Discard, body) // archives end with blocks of nothing
	}
	if is := hex.EncodeToString(sum.Sum(nil)); err == nil && is != from.SHA256 {
		err = fault.NewTerminal(reasonImage, fmt.Errorf("it has checksum %s, and the stream says %s", is, from.SHA256))
	}
	if err == nil {
		err = lease.Complete(ctx)
	} else if lease != nil {
		_ = lease.Abort(context.WithoutCancel(ctx), nil)
	}
	if err != nil {
		return fmt.Errorf("importing boot image %q: %w", from.URL, err)
	}
	return nil
}

// load imports what is in an archive. The lease is returned also with an error, where it has begun.
func (at *place) load(ctx context.Context, archive *tar.Reader) (*nfc.Lease, error) {
	head, err := archive.Next()
	if err != nil {
		return nil, fmt.Errorf("reading the archive: %w", err)
	}
	if path.Ext(head.Name) != ".ovf" || head.Size > maxDescriptor {
		return nil, fault.NewTerminal(reasonImage, fmt.Errorf("it begins with %q of %d bytes, and not with a description", head.Name, head.Size))
	}
	descriptor, err := io.ReadAll(io.LimitReader(archive, maxDescriptor))
	if err != nil {
		return nil, fmt.Errorf("reading its description: %w", err)
	}
	lease, info, err := at.begin(ctx, string(descriptor))
	if err != nil {
		return lease, err
	}
	updater := lease.StartUpdater(ctx, info) // a lease that no one renews ends
	defer updater.Done()
	left := map[string]nfc.FileItem{}
	for _, item := range info.Items {
		left[item.Path] = item
	}
	for len(left) > 0 {
		file, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return lease, fault.NewTerminal(reasonImage, fmt.Errorf("it lacks %d files that its description names", len(left)))
		}
		if err != nil {
			return lease, fmt.Errorf("reading the archive: %w", err)
		}
		item, isWanted := left[file.Name]
		if !isWanted {
			continue
		}
		if err := lease.Upload(ctx, item, archive, soap.Upload{ContentLength: file.Size}); err != nil {
			return lease, fmt.Errorf("uploading %q: %w", file.Name, err)
		}
		delete(left, file.Name)
	}
	return lease, nil
}

// begin has vSphere make the machine that a description is of, which then waits for its disks.
func (at *place) begin(ctx context.Context, descriptor string) (*nfc.Lease, *nfc.LeaseInfo, error) {
	params := &types.OvfCreateImportSpecParams{EntityName: at.name + unfinished}
	manager := ovf.NewManager(at.vc)
	if at.network != nil {
		described, err := ovf.Unmarshal(strings.NewReader(descriptor))
		if err != nil {
			return nil, nil, fault.NewTerminal(reasonImage, fmt.Errorf("reading its description: %w", err))
		}
		if described.Network != nil {
			for _, network := range described.Network.Networks {
				params.NetworkMapping = append(params.NetworkMapping, types.OvfNetworkMapping{Name: network.Name, Network: at.network.Reference()})
			}
		}
	}
	made, err := manager.CreateImportSpec(ctx, descriptor, at.pool, at.store, params)
	if err != nil {
		return nil, nil, fmt.Errorf("having its description read: %w", err)
	}
	if len(made.Error) > 0 {
		return nil, nil, fault.NewTerminal(reasonImage, fmt.Errorf("vSphere refuses its description: %w", &task.Error{LocalizedMethodFault: &made.Error[0]}))
	}
	host, err := at.host(ctx)
	if err != nil {
		return nil, nil, err
	}
	lease, err := at.pool.ImportVApp(ctx, made.ImportSpec, at.folder, host)
	if err != nil {
		return nil, nil, fmt.Errorf("making the machine for it: %w", err)
	}
	info, err := lease.Wait(ctx, made.FileItem)
	if err != nil {
		return lease, nil, fmt.Errorf("making the machine for it: %w", err)
	}
	return lease, info, nil
}
