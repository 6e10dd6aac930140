package inventory

import (
	"cmp"
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/images/owner"
	"github.com/layerwright/layerwright/internal/registry/credentials"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/rollout/plan"
	"github.com/layerwright/layerwright/view"
)

// Image is one image of a pool. What is not known is empty, and nil.
type Image struct {
	// Image is it by digest, and Name its MachineOSImage; empty where the cluster has none.
	Image mcfgv1.ImageDigestFormat `json:"image"`
	Name  string                   `json:"name,omitempty"`
	// Tags are those that the registry has for the pool, the pool's own first.
	Tags []string `json:"tags,omitempty"`
	// Base is the OS image that it was made on, Stream that of the base, and BuildKey what
	// identifies its inputs.
	Base     mcfgv1.ImageDigestFormat `json:"base,omitempty"`
	Stream   string                   `json:"stream,omitempty"`
	BuildKey string                   `json:"buildKey,omitempty"`
	// Signed and Attested are "yes", or the reason why not.
	Signed   string `json:"signed,omitempty"`
	Attested string `json:"attested,omitempty"`
	// Size is in bytes as the registry has them, and Pull how much of it a node pulls that runs the
	// image that the inventory compares with. Of several architectures it is the most.
	Size *int64 `json:"size,omitempty"`
	Pull *int64 `json:"pull,omitempty"`
	// Nodes is how many nodes of the pool run it.
	Nodes int `json:"nodes"`
	// Quarantine is why no further node gets it.
	Quarantine string `json:"quarantine,omitempty"`
}

// Inventory are the images of a pool, the newest first. Those that only the registry knows are the
// last.
type Inventory struct {
	Pool string `json:"pool"`
	// Repository is where the images of the pool are pushed to; empty where it has no
	// MachineOSConfig.
	Repository string `json:"repository,omitempty"`
	// ComparedWith is the image that the most nodes of the pool run, from which Pull counts; empty
	// where that is not known.
	ComparedWith mcfgv1.ImageDigestFormat `json:"comparedWith,omitempty"`
	Images       []Image                  `json:"images"`
}

// Of is what the objects say of the images of a pool, and of its nodes.
func Of(o *view.Objects, pool string, members []plan.Node) *Inventory {
	v := &Inventory{Pool: pool, Images: []Image{}}
	if config := ConfigOf(o, pool); config != nil {
		v.Repository, _ = credentials.Repository(config.Spec.RenderedImagePushSpec) // the API server has checked it
	}
	running := map[mcfgv1.ImageDigestFormat]int{}
	for i := range members {
		running[members[i].RunsImage]++
	}
	v.ComparedWith = most(running)
	for _, object := range owner.ImagesOf(o.Images, pool) {
		image := imageOf(object, v.ComparedWith)
		image.Nodes = running[object.Spec.PullSpec]
		if build := owner.BuildOf(o.Builds, object); build != nil {
			asked := build.Asked()
			image.Stream, image.BuildKey = asked.OSImageStream, cmp.Or(asked.BuildKey, build.Status.BuildKey)
		}
		v.Images = append(v.Images, image)
	}
	return v
}

// ConfigOf is the MachineOSConfig of a pool; nil where it has none.
func ConfigOf(o *view.Objects, pool string) *mcfgv1.MachineOSConfig {
	i := slices.IndexFunc(o.Configs, func(c mcfgv1.MachineOSConfig) bool { return c.Spec.MachineConfigPool.Name == pool })
	if i < 0 {
		return nil
	}
	return &o.Configs[i]
}

// Members are the nodes of a pool. RunsImage is known of those that run an image of their own; of
// the others it is the OS image of their configuration, which is no object here.
func Members(o *view.Objects, pool string) []plan.Node {
	selectors, reports := o.Selectors(), o.ReportsByNode()
	var members []plan.Node
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if !selectors.Has(pool, n.Labels) {
			continue
		}
		node := plan.Observe(n, reports[n.Name])
		node.RunsImage = mcfgv1.ImageDigestFormat(node.CurrentImage)
		members = append(members, node)
	}
	return members
}

// most is the image that the most nodes run, as far as that is known.
func most(running map[mcfgv1.ImageDigestFormat]int) mcfgv1.ImageDigestFormat {
	var found mcfgv1.ImageDigestFormat
	for image, count := range running {
		if image != "" && (found == "" || count > running[found] || count == running[found] && image < found) {
			found = image
		}
	}
	return found
}

// imageOf is what a MachineOSImage says.
func imageOf(o *mcfgv1alpha1.MachineOSImage, comparedWith mcfgv1.ImageDigestFormat) Image {
	image := Image{
		Image: o.Spec.PullSpec, Name: o.Name, Base: o.Spec.BaseOSImagePullSpec,
		Signed: status.Word(o.Status.Conditions, mcfgv1alpha1.ImageSigned), Attested: status.Word(o.Status.Conditions, mcfgv1alpha1.ImageAttested),
	}
	if q := o.Quarantined(); q != nil {
		image.Quarantine = q.Reason + ": " + q.Message
	}
	for i := range o.Status.Architectures {
		a := &o.Status.Architectures[i]
		image.Size = larger(image.Size, a.Size)
		if o.Status.PreviousImagePullSpec == comparedWith && comparedWith != "" {
			image.Pull = larger(image.Pull, a.PullSize)
		}
	}
	if o.Spec.PullSpec == comparedWith {
		image.Pull = new(int64)
	}
	return image
}

// larger is the larger of two numbers that may not be known.
func larger(a, b *int64) *int64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}
