package plan

import (
	"regexp"
	"strings"

	"github.com/coreos/stream-metadata-go/stream"
	"github.com/coreos/stream-metadata-go/stream/rhcos"
)

// An image of Azure is written as the marketplace does, publisher:offer:sku:version, or as the path
// of a resource, which begins with a slash.

// urnParts is how many parts the name of an image in the marketplace has.
const urnParts = 4

// azureImage is an image as both APIs have it.
type azureImage struct {
	publisher, offer, sku, version string
	// resource is the path of an image in the subscription.
	resource string
}

func (i *azureImage) String() string {
	if i.resource != "" {
		return i.resource
	}
	if i.publisher == "" && i.offer == "" && i.sku == "" {
		return ""
	}
	return strings.Join([]string{i.publisher, i.offer, i.sku, i.version}, ":")
}

func parseAzure(id string) (*azureImage, *Problem) {
	if strings.HasPrefix(id, "/") {
		return &azureImage{resource: id}, nil
	}
	parts := strings.Split(id, ":")
	if len(parts) != urnParts {
		return nil, failed(ReasonUnknownPin, "%q is neither publisher:offer:sku:version nor the path of a resource", id)
	}
	return &azureImage{publisher: parts[0], offer: parts[1], sku: parts[2], version: parts[3]}, nil
}

// wantedAzure is the image of a stream in the same offer; what was uploaded when the cluster was
// installed moves to the free one.
func wantedAzure(s Spec, current string, q *query) (Image, *Problem) {
	if q.arch != "x86_64" && q.arch != "aarch64" {
		return Image{}, skip(ReasonNoMarketplaceImage, "the marketplace has no images for architecture %s", q.arch)
	}
	if text(s, "securityProfile", "settings", "securityType") != "" || text(s, "securityProfile", "securityType") != "" {
		return Image{}, skip(ReasonConfidential, "its machines have a security type, which only some images allow")
	}
	extensions := q.images.RHELCoreOSExtensions
	if extensions == nil || extensions.Marketplace == nil || extensions.Marketplace.Azure == nil {
		return Image{}, skip(ReasonNoMarketplaceImage, "the stream has no images in the marketplace")
	}
	has, problem := parseAzure(current)
	if problem != nil {
		return Image{}, problem
	}
	offer, problem := offerOf(has, extensions.Marketplace.Azure, q.in.Resource.infraName())
	if problem != nil {
		return Image{}, problem
	}
	generation := 2
	if q.arch == "x86_64" {
		generation = generationOf(has, offer)
	}
	var image *rhcos.AzureMarketplaceImage
	switch generation {
	case 0:
		return Image{}, skip(ReasonCustomImage, "SKU %q of its image does not say which generation of Hyper-V its machines are; set an image of the stream once by hand", has.sku)
	case 1:
		image = offer.Gen1
	default:
		image = offer.Gen2
	}
	if image == nil {
		return Image{}, skip(ReasonNoMarketplaceImage, "the stream has no image of the generation of its machines in the marketplace")
	}
	if image.Publisher == "" || image.Offer == "" || image.SKU == "" || image.Version == "" {
		return Image{}, failed(ReasonInvalidMetadata, "the stream's image %q in the marketplace lacks a part of its name", image.URN())
	}
	return Image{ID: image.URN(), Version: releaseOfAzure(q.images, image)}, nil
}

// releaseOfAzure is the release of the stream's images; the marketplace has versions of its own.
func releaseOfAzure(images *stream.Arch, image *rhcos.AzureMarketplaceImage) string {
	if a := images.Artifacts["azure"]; a.Release != "" {
		return a.Release
	}
	if e := images.RHELCoreOSExtensions; e != nil && e.AzureDisk != nil && e.AzureDisk.Release != "" {
		return e.AzureDisk.Release
	}
	return image.Version
}

// offers are all that a stream has in the marketplace.
func offers(m *rhcos.AzureMarketplace) []*rhcos.AzureMarketplaceImages {
	return []*rhcos.AzureMarketplaceImages{m.NoPurchasePlan, m.OCP, m.OPP, m.OKE, m.OCPEMEA, m.OPPEMEA, m.OKEEMEA}
}

// generations are the images of an offer.
func generations(o *rhcos.AzureMarketplaceImages) []*rhcos.AzureMarketplaceImage {
	if o == nil {
		return nil
	}
	return []*rhcos.AzureMarketplaceImage{o.Gen1, o.Gen2}
}

// offerOf is the offer that an image is of: what is paid for stays.
func offerOf(has *azureImage, m *rhcos.AzureMarketplace, infra string) (*rhcos.AzureMarketplaceImages, *Problem) {
	if has.resource != "" {
		name := imageName(has.resource)
		if infra == "" || name != infra && name != infra+"-gen2" {
			return nil, skip(ReasonCustomImage, "its image %q is not the one of the installation", has.resource)
		}
		if m.NoPurchasePlan == nil {
			return nil, skip(ReasonNoMarketplaceImage, "the stream has no free image in the marketplace")
		}
		return m.NoPurchasePlan, nil
	}
	for _, offer := range offers(m) {
		for _, image := range generations(offer) {
			if image != nil && strings.EqualFold(image.Publisher, has.publisher) && strings.EqualFold(image.Offer, has.offer) {
				return offer, nil
			}
		}
	}
	return nil, skip(ReasonUnknownImageOwner, "the stream has no image of publisher %q and offer %q", has.publisher, has.offer)
}

// imageName is the name after the last "images" in a resource's path.
func imageName(resource string) string {
	parts := strings.Split(resource, "/")
	for i := len(parts) - 2; i >= 0; i-- {
		if strings.EqualFold(parts[i], "images") {
			return parts[i+1]
		}
	}
	return ""
}

// generationMark is how SKUs name the generation of Hyper-V, as in rh-ocp-worker-gen1 and 419-v2.
var generationMark = regexp.MustCompile(`(?i)(?:^|[-_])(?:gen|v)([12])(?:$|[-_])`)

var digits = regexp.MustCompile(`[0-9]+`)

// generationOf is the generation of Hyper-V that an image is for; 0 where nothing says it. A SKU
// without a mark, such as aro_418, has that of the stream's SKU that differs in numbers only.
func generationOf(has *azureImage, offer *rhcos.AzureMarketplaceImages) int {
	if has.resource != "" {
		if strings.HasSuffix(imageName(has.resource), "-gen2") {
			return 2
		}
		return 1
	}
	alike := func(a, b string) bool {
		return strings.EqualFold(digits.ReplaceAllString(a, "#"), digits.ReplaceAllString(b, "#"))
	}
	if generation := generationLike(has.sku, offer, strings.EqualFold); generation != 0 {
		return generation
	}
	if mark := generationMark.FindStringSubmatch(has.sku); mark != nil {
		return int(mark[1][0] - '0')
	}
	return generationLike(has.sku, offer, alike)
}

// generationLike is the generation of the one image of an offer whose SKU is like another; 0 where
// none or both are.
func generationLike(sku string, offer *rhcos.AzureMarketplaceImages, isLike func(a, b string) bool) int {
	is1 := offer.Gen1 != nil && isLike(offer.Gen1.SKU, sku)
	is2 := offer.Gen2 != nil && isLike(offer.Gen2.SKU, sku)
	switch {
	case is1 && !is2:
		return 1
	case is2 && !is1:
		return 2
	}
	return 0
}

func azureVersionIn(images *stream.Arch, id string) string {
	e := images.RHELCoreOSExtensions
	if e == nil || e.Marketplace == nil || e.Marketplace.Azure == nil {
		return ""
	}
	for _, offer := range offers(e.Marketplace.Azure) {
		for _, image := range generations(offer) {
			if image != nil && image.URN() == id {
				return releaseOfAzure(images, image)
			}
		}
	}
	return ""
}

// azureMachine is a specification of the Machine API.
type azureMachine struct{}

func (azureMachine) current(s Spec) (string, *Problem) {
	image := azureImage{
		publisher: text(s, "image", "publisher"), offer: text(s, "image", "offer"), sku: text(s, "image", "sku"),
		version: text(s, "image", "version"), resource: text(s, "image", "resourceID"),
	}
	return image.String(), nil
}

func (azureMachine) wanted(s Spec, current string, q *query) (Image, *Problem) {
	return wantedAzure(s, current, q)
}

// set keeps the type of the image, paid for or not, unless that contradicts the image's name.
func (azureMachine) set(s Spec, id string) *Problem {
	image, problem := parseAzure(id)
	if problem != nil {
		return problem
	}
	is := nested(s, "image")
	is["publisher"], is["offer"], is["sku"], is["version"] = image.publisher, image.offer, image.sku, image.version
	is["resourceID"] = image.resource
	const byID, byName = "ID", "MarketplaceNoPlan"
	switch kind := is["type"]; {
	case kind == byID && image.resource == "":
		is["type"] = byName
	case kind != nil && kind != byID && image.resource != "":
		is["type"] = byID
	}
	return nil
}

func (azureMachine) versionIn(images *stream.Arch, image string) string {
	return azureVersionIn(images, image)
}

// azureTemplate is a template of Cluster API.
type azureTemplate struct{}

func (azureTemplate) current(s Spec) (string, *Problem) {
	if m := nested(s, "image", "marketplace"); m != nil {
		image := azureImage{publisher: text(m, "publisher"), offer: text(m, "offer"), sku: text(m, "sku"), version: text(m, "version")}
		return image.String(), nil
	}
	if id := text(s, "image", "id"); id != "" {
		return id, nil
	}
	if len(nested(s, "image")) > 0 {
		return "", skip(ReasonCustomImage, "its image is one of a gallery")
	}
	return "", nil
}

func (azureTemplate) wanted(s Spec, current string, q *query) (Image, *Problem) {
	return wantedAzure(s, current, q)
}

func (azureTemplate) set(s Spec, id string) *Problem {
	image, problem := parseAzure(id)
	if problem != nil {
		return problem
	}
	is := nested(s, "image")
	if image.resource != "" {
		delete(is, "marketplace")
		is["id"] = image.resource
		return nil
	}
	delete(is, "id")
	m := nested(is, "marketplace")
	if m == nil {
		m = map[string]any{}
		is["marketplace"] = m
	}
	m["publisher"], m["offer"], m["sku"], m["version"] = image.publisher, image.offer, image.sku, image.version
	return nil
}

func (azureTemplate) versionIn(images *stream.Arch, image string) string {
	return azureVersionIn(images, image)
}
