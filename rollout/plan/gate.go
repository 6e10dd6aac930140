package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/version"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/rollout/words"
)

// Check is what an image has to pass before a node gets it (seed 004, Pre-Rollout Checks).
type Check string

// The checks, in the order in which they are made.
const (
	// CheckImage means that there is an image, and that it is the pool's.
	CheckImage Check = "Image"
	// CheckConfiguration means that the image is what the pool's rendered MachineConfig asks for:
	// it was made with it, or the builder says that it fits.
	CheckConfiguration Check = "Configuration"
	// CheckReady means that the image is signed, attested and verified as the cluster asks for, and
	// not quarantined: its condition Ready.
	CheckReady Check = "Ready"
	// CheckBaseImage means that the image stands on the OS image of the pool's stream.
	CheckBaseImage Check = "BaseImage"
	// CheckExtensions means that its extensions are of the image of extensions of the pool's
	// stream.
	CheckExtensions Check = "Extensions"
	// CheckArchitectures means that there is an image for the architecture of each node.
	CheckArchitectures Check = "Architectures"
	// CheckKubeletVersion means that the kubelet of nodes that run the image already, if any does,
	// is within the version skew policy of Kubernetes.
	CheckKubeletVersion Check = "KubeletVersion"
)

// conditionReady is the summary of a MachineOSImage.
const conditionReady = "Ready"

// Wanted is what Gate judges.
type Wanted struct {
	// Pool is the MachineConfigPool.
	Pool *mcfgv1.MachineConfigPool
	// Config is the rendered MachineConfig that spec.configuration names; nil where there is none.
	Config *mcfgv1.MachineConfig
	// Layer is the MachineOSConfig of the pool; nil where there is none, or it is being deleted.
	Layer *mcfgv1.MachineOSConfig
	// Build is the MachineOSBuild that made the newest image; nil where it is gone.
	Build *mcfgv1.MachineOSBuild
	// Images are all MachineOSImages.
	Images []mcfgv1alpha1.MachineOSImage
	// ImageNames are the names that builds give the object of the newest image.
	ImageNames []string
	// Architectures are those of the pool's nodes.
	Architectures []mcfgv1.Architecture
	// Kubelets are the versions of kubelets by the image that their nodes run. Nothing else tells
	// which kubelet an image has.
	Kubelets map[mcfgv1.ImageDigestFormat][]string
	// APIServer is the version of the API server; empty where it is not known.
	APIServer string
}

// Verdict is what the pool's nodes should have, or why no node may start to change.
type Verdict struct {
	// Target is what the nodes should have; empty where that is not known yet.
	Target nodes.Target
	// Image is what a node stages for it.
	Image string
	// Failed is the check that holds the image back; empty where none does.
	Failed Check
	// Hold is why no node may start to change, for people; empty where they may.
	Hold string
	// Found is the image that was judged; nil where there is none.
	Found *mcfgv1alpha1.MachineOSImage
}

// Quarantined reports whether the image is in quarantine.
func (v *Verdict) Quarantined() bool { return v.Found != nil && v.Found.Quarantined() != nil }

// Refused reports whether there is an image, and a check keeps it from the nodes.
func (v *Verdict) Refused() bool {
	return v.Failed != "" && v.Failed != CheckImage && v.Failed != CheckConfiguration
}

// Reason is why no node may start to change, with the check that says so; empty where they may.
func (v *Verdict) Reason() string {
	if !v.Refused() {
		return v.Hold
	}
	return words.Check + string(v.Failed) + ": " + v.Hold
}

// Gate judges what the nodes of a pool should have, and whether they may go there.
func Gate(w Wanted) Verdict {
	switch {
	case w.Config == nil:
		return Verdict{Hold: "the pool has no configuration yet"}
	case w.Pool.Spec.MachineOSImage != "":
		return w.pinned()
	case w.Layer == nil:
		return w.base()
	default:
		return w.newest()
	}
}

// base sends the nodes to the OS image of the rendered MachineConfig. Images that nodes follow by a
// tag are never staged: two nodes could get different ones.
func (w *Wanted) base() Verdict {
	v := Verdict{Target: nodes.Target{Config: w.Config.Name}, Image: w.Config.Spec.OSImageURL}
	if v.Image != "" && mcfgv1.ImageDigestFormat(v.Image).Digest() == "" {
		v.Failed = CheckImage
		v.Hold = fmt.Sprintf("osImageURL %q of %s has no digest: nodes get images by digest only", v.Image, w.Config.Name)
	}
	return v
}

// newest judges the newest image of the pool's MachineOSConfig.
func (w *Wanted) newest() Verdict {
	spec := w.Layer.Status.CurrentImagePullSpec
	if spec == "" {
		return held(CheckImage, "MachineOSConfig %s has no image yet", w.Layer.Name)
	}
	image := w.imageOf(spec)
	if image == nil {
		return held(CheckImage, "there is no MachineOSImage of %s yet", spec.Short())
	}
	if image.Configuration() != w.Config.Name {
		return held(CheckConfiguration, words.WaitsForImage+"%s: the newest one is of %s", w.Config.Name, image.Configuration())
	}
	v := w.judge(image, w.Config.Name)
	if v.Hold == "" {
		v.Hold = pushOnly(w.Layer)
	}
	return v
}

// imageOf is the MachineOSImage of an image; nil where there is none. Others than its build may
// have made objects of the same image: the one whose name builds give comes first.
func (w *Wanted) imageOf(spec mcfgv1.ImageDigestFormat) *mcfgv1alpha1.MachineOSImage {
	var found *mcfgv1alpha1.MachineOSImage
	for i := range w.Images {
		image := &w.Images[i]
		isOf := image.Spec.PullSpec == spec && image.Spec.MachineConfigPool == w.Pool.Name
		if isOf && (found == nil || slices.Contains(w.ImageNames, image.Name)) {
			found = image
		}
	}
	return found
}

// pinned judges the image that the pool names. Its configuration comes with it, so that an older
// image brings back the last configuration that it was rolled out with.
func (w *Wanted) pinned() Verdict {
	name := w.Pool.Spec.MachineOSImage
	i := slices.IndexFunc(w.Images, func(i mcfgv1alpha1.MachineOSImage) bool { return i.Name == name })
	if i < 0 {
		return held(CheckImage, "spec.machineOSImage names the MachineOSImage %q, which does not exist", name)
	}
	image := &w.Images[i]
	if image.Spec.MachineConfigPool != w.Pool.Name {
		return held(CheckImage, "spec.machineOSImage names the MachineOSImage %q, which is for pool %s", name, image.Spec.MachineConfigPool)
	}
	return w.judge(image, cmp.Or(image.Configuration(), w.Config.Name))
}

// judge makes the checks that every image has to pass.
func (w *Wanted) judge(image *mcfgv1alpha1.MachineOSImage, config string) Verdict {
	spec := string(image.Spec.PullSpec)
	v := Verdict{Target: nodes.Target{Config: config, Image: spec}, Image: spec, Found: image}
	isCurrent := config == w.Config.Name
	switch {
	case image.Quarantined() != nil:
		q := image.Quarantined()
		v.fail(CheckReady, "MachineOSImage %s is in quarantine: %s: %s", image.Name, q.Reason, q.Message)
	case !image.DeletionTimestamp.IsZero():
		v.fail(CheckReady, "MachineOSImage %s is being deleted", image.Name)
	case !meta.IsStatusConditionTrue(image.Status.Conditions, conditionReady):
		v.fail(CheckReady, "MachineOSImage %s is not ready: %s", image.Name, whyNot(image))
	case isCurrent && !w.isOnStream(image):
		v.fail(CheckBaseImage, "MachineOSImage %s is built on %s, but the pool uses %s",
			image.Name, image.Spec.BaseOSImagePullSpec.Short(), mcfgv1.ImageDigestFormat(w.Config.Spec.OSImageURL).Short())
	case isCurrent && !w.hasExtensions(image):
		v.fail(CheckExtensions, "MachineOSImage %s has extensions of another image than the pool's stream: wait for the next build, or have it built again with the annotation %s of the MachineOSConfig",
			image.Name, mcfgv1.AnnotationRebuildImage)
	default:
		w.checkArchitectures(image, &v)
		w.checkKubelets(image, &v)
	}
	return v
}

// isOnStream reports whether the image stands on the pool's OS image. A MachineOSConfig that names
// a base image of its own, and an image of unknown origin, are not held against the stream.
func (w *Wanted) isOnStream(image *mcfgv1alpha1.MachineOSImage) bool {
	base := image.Spec.BaseOSImagePullSpec.Digest()
	wanted := mcfgv1.ImageDigestFormat(w.Config.Spec.OSImageURL).Digest()
	isOwn := w.Layer != nil && w.Layer.Spec.BaseOSImagePullSpec != ""
	return isOwn || base == "" || wanted == "" || base == wanted
}

// hasExtensions reports whether the image was built with the pool's image of extensions, as far as
// its build tells. Where the builder says that the image fits a later configuration, it has looked.
func (w *Wanted) hasExtensions(image *mcfgv1alpha1.MachineOSImage) bool {
	if w.Build == nil || w.Build.Status.DigestedImagePushSpec != image.Spec.PullSpec || image.Spec.RenderedMachineConfig != w.Config.Name {
		return true
	}
	if w.Layer != nil && (w.Layer.Spec.BaseOSExtensionsImagePullSpec != "" || w.Layer.Spec.BaseOSImagePullSpec != "") {
		return true
	}
	used := w.Build.Asked().ExtensionsImage.Digest()
	wanted := mcfgv1.ImageDigestFormat(w.Config.Spec.BaseOSExtensionsContainerImage).Digest()
	return used == "" || wanted == "" || used == wanted
}

// checkArchitectures fails where a node has an architecture that the image was not made for.
func (w *Wanted) checkArchitectures(image *mcfgv1alpha1.MachineOSImage, v *Verdict) {
	if len(image.Status.Architectures) == 0 {
		return
	}
	var missing []string
	for _, a := range w.Architectures {
		has := slices.ContainsFunc(image.Status.Architectures, func(i mcfgv1alpha1.ImageArchitecture) bool { return i.Architecture == a })
		if !has && !slices.Contains(missing, string(a)) {
			missing = append(missing, string(a))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		v.fail(CheckArchitectures, "MachineOSImage %s has no image for %s, which nodes of the pool are of", image.Name, strings.Join(missing, " and "))
	}
}

// checkKubelets fails where a node that runs the image has a kubelet that the API server does not
// support.
func (w *Wanted) checkKubelets(image *mcfgv1alpha1.MachineOSImage, v *Verdict) {
	for _, kubelet := range w.Kubelets[image.Spec.PullSpec] {
		if why := skew(kubelet, w.APIServer); why != "" && v.Hold == "" {
			v.fail(CheckKubeletVersion, "MachineOSImage %s has kubelet %s, which is %s the API server's %s", image.Name, kubelet, why, w.APIServer)
		}
	}
}

// maxSkew is how many minor versions a kubelet may be older than the API server.
const maxSkew = 3

// skew says how a kubelet is outside of the version skew policy; empty where it is not, and where a
// version can't be read.
func skew(kubelet, server string) string {
	k, notKubelet := version.ParseGeneric(kubelet)
	s, notServer := version.ParseGeneric(server)
	switch {
	case notKubelet != nil || notServer != nil:
		return ""
	case k.Major() > s.Major(), k.Major() == s.Major() && k.Minor() > s.Minor():
		return "newer than"
	case k.Major() < s.Major(), k.Minor()+maxSkew < s.Minor():
		return fmt.Sprintf("more than %d minor versions older than", maxSkew)
	default:
		return ""
	}
}

// pushOnly is why the images of a MachineOSConfig are not rolled out; empty where they are.
func pushOnly(layer *mcfgv1.MachineOSConfig) string {
	switch _, isHeld := layer.Annotations[mcfgv1.AnnotationNoRollout]; {
	case !layer.IsPushOnly():
		return ""
	case isHeld:
		return "MachineOSConfig " + layer.Name + " has the annotation " + mcfgv1.AnnotationNoRollout
	default:
		return "spec.postBuildStrategy of MachineOSConfig " + layer.Name + " is ImagePushOnly"
	}
}

// whyNot is why an image is not Ready, in the words of its condition.
func whyNot(image *mcfgv1alpha1.MachineOSImage) string {
	c := meta.FindStatusCondition(image.Status.Conditions, conditionReady)
	switch {
	case c == nil:
		return "it has not been looked at yet"
	case c.Message == "":
		return c.Reason
	default:
		return c.Reason + ": " + c.Message
	}
}

func (v *Verdict) fail(check Check, format string, args ...any) {
	v.Failed, v.Hold = check, fmt.Sprintf(format, args...)
}

func held(check Check, format string, args ...any) Verdict {
	v := Verdict{}
	v.fail(check, format, args...)
	return v
}
