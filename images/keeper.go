package images

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/internal/metrics"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/trust/sign"
)

// Trust has those whose signatures are trusted; *sign.SecretKeys is one.
type Trust interface {
	Trusted(ctx context.Context) (sign.Trusted, error)
}

// Options are what a Keeper works with.
type Options struct {
	// Client reads from the cache, Reader asks the API server.
	Client client.Client
	Reader client.Reader
	Clock  clock.PassiveClock
	Events events.Publisher
	// Credentials are those that MachineOSConfigs name.
	Credentials *credentials.Source
	// Signer signs images before they are ready; nil signs none. OwnKeys has the keys whose
	// signatures are trusted then, that of the Signer as the first.
	Signer  Signer
	OwnKeys Trust
	// Attester states how images were made, and what is in them, before they are signed; nil states
	// nothing.
	Attester Attester
	// Inputs are what a build has recorded of its inputs; the Attester needs it.
	Inputs func(*mcfgv1.MachineOSBuild) (*provenance.Inputs, error)
	// SBOMs lists what is in images; nil has no such statements made.
	SBOMs SBOM
	// BuilderID is what the provenance of images calls this installation, a URI;
	// provenance.DefaultBuilderID where empty.
	BuilderID string
	// TrustPolicy says whose images are trusted beside those that are signed here; nil where no one
	// wrote one.
	TrustPolicy TrustPolicy
	// Begin notes that something is in work until end is called, so that an image which kills the
	// process is found and refused (internal/inwork); nil notes nothing.
	Begin func(ctx context.Context, object, version, retry string) (end func(), err error)
	// Metrics may be nil.
	Metrics *metrics.Builds
}

// Keeper attests, signs and verifies images. It may be used by several goroutines.
type Keeper struct {
	options Options

	client      client.Client
	reader      client.Reader
	clock       clock.PassiveClock
	events      events.Publisher
	credentials *credentials.Source
	// signings has a lock for each image that is being signed.
	signings locks
	// withoutSBOM has an error for each image whose SBOM can never be made, of the last ones.
	withoutSBOM *lru.Cache
}

// maxWithoutSBOM is more than the images that most clusters keep; of an older one it is found out
// again.
const maxWithoutSBOM = 1000

// New returns a Keeper.
func New(options Options) *Keeper {
	return &Keeper{
		options: options, client: options.Client, reader: options.Reader, clock: options.Clock, events: options.Events, credentials: options.Credentials,
		withoutSBOM: lru.New(maxWithoutSBOM),
	}
}

// Signs reports whether images are signed here.
func (k *Keeper) Signs() bool { return k.options.Signer != nil }

// Attests reports whether statements are made about images.
func (k *Keeper) Attests() bool { return k.options.Attester != nil }

// Lock waits until nothing signs an image, and keeps it so until it is unlocked.
func (k *Keeper) Lock(ctx context.Context, image string) (unlock func(), err error) {
	return k.signings.lock(ctx, image)
}

// checkKept fails for an image that was removed, or is being removed, since it was read: who waits
// for it comes after retention, and has nothing to say of it.
func (k *Keeper) checkKept(ctx context.Context, image *mcfgv1alpha1.MachineOSImage) error {
	now := &mcfgv1alpha1.MachineOSImage{}
	err := k.reader.Get(ctx, client.ObjectKeyFromObject(image), now)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading MachineOSImage %q: %w", image.Name, err)
	case err != nil || now.UID != image.UID || !now.DeletionTimestamp.IsZero():
		return fmt.Errorf("MachineOSImage %q was removed meanwhile", image.Name)
	}
	return nil
}

// noted does something with what the registry has about an image. Each thing has a note of its own:
// one that ends well says nothing about the others.
func (k *Keeper) noted(ctx context.Context, what string, image *mcfgv1alpha1.MachineOSImage, do func() error) error {
	if k.options.Begin == nil {
		return do()
	}
	end, err := k.options.Begin(ctx, fmt.Sprintf("the %s of MachineOSImage %q", what, image.Name), string(image.UID), "delete that MachineOSImage")
	if err != nil {
		return err
	}
	defer end()
	return do()
}

// ImagesOfPolicy are requests for all images, when the ConfigMap is the trust policy.
func (k *Keeper) ImagesOfPolicy(ctx context.Context, object client.Object) []reconcile.Request {
	if k.options.TrustPolicy == nil || !k.options.TrustPolicy.IsIn(client.ObjectKeyFromObject(object)) {
		return nil
	}
	var list mcfgv1alpha1.MachineOSImageList
	if err := k.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing MachineOSImages")
	}
	out := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		out[i].Name = list.Items[i].Name
	}
	return out
}
