package plan

import (
	"regexp"
	"slices"

	"github.com/coreos/stream-metadata-go/stream"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
)

// Accounts that AMIs belong to.
const (
	// awsRHCOS and awsFCOS publish those that streams of RHEL CoreOS and of Fedora CoreOS name.
	awsRHCOS = "531415883065"
	awsFCOS  = "125523088429"
	// awsMarketplace sells those of the marketplace, which streams do not name.
	awsMarketplace = "679593333241"
)

var amiID = regexp.MustCompile(`^ami-[0-9a-f]{8,17}$`)

// aws has an AMI, which is of one region.
type aws struct {
	// region is where a specification says it; templates of Cluster API do not.
	region []string
}

func (aws) current(s Spec) (string, *Problem) {
	id := text(s, "ami", "id")
	switch ami := nested(s, "ami"); {
	case id != "":
		return id, nil
	case len(ami) > 0:
		return "", skip(ReasonCustomImage, "its AMI is found by a filter or an ARN")
	}
	return "", nil
}

func (a aws) wanted(s Spec, current string, q *query) (Image, *Problem) {
	if q.images.Images.Aws == nil {
		return Image{}, skip(ReasonNoImageForStream, "the stream has no AMIs")
	}
	region := q.in.Region
	if len(a.region) > 0 {
		region = text(s, a.region...)
	}
	if region == "" {
		return Image{}, skip(ReasonNoImageForRegion, "the region is not known")
	}
	found, isThere := q.images.Images.Aws.Regions[region]
	if !isThere {
		return Image{}, skip(ReasonNoImageForRegion, "the stream has no AMI in region %q", region)
	}
	if !amiID.MatchString(found.Image) {
		return Image{}, failed(ReasonInvalidMetadata, "the stream's AMI %q in region %q is not a valid AMI ID", found.Image, region)
	}
	if !isPublished(q.in.Images, current) && !isRecorded(q.in.History, current) {
		if problem := a.checkOwner(Question{region, current}, q); problem != nil {
			return Image{}, problem
		}
	}
	return Image{ID: found.Image, Version: found.Release}, nil
}

// checkOwner returns a Problem for an AMI that no stream names, unless it has an owner of streams'
// AMIs.
func (aws) checkOwner(question Question, q *query) *Problem {
	switch owner, isAnswered := q.in.Owners[question]; {
	case !isAnswered:
		return &Problem{Reason: ReasonUnknownImageOwner, Message: "the owner of AMI " + question.Image + " is not known", question: &question}
	case owner.Account == awsRHCOS || owner.Account == awsFCOS:
		return nil
	case owner.Account == awsMarketplace:
		return skip(ReasonMarketplaceImage, "AMI %s is from the marketplace, and the streams have no marketplace AMI", question.Image)
	case owner.Account == "":
		return skip(ReasonUnknownImageOwner, "the owner of AMI %s is not known: %s", question.Image, owner.Unknown)
	default:
		return skip(ReasonUnknownImageOwner, "AMI %s belongs to account %s, which publishes no boot images", question.Image, owner.Account)
	}
}

func (aws) set(s Spec, image string) *Problem {
	s["ami"] = map[string]any{"id": image}
	return nil
}

func (aws) versionIn(images *stream.Arch, image string) string {
	if images.Images.Aws == nil {
		return ""
	}
	for _, of := range images.Images.Aws.Regions {
		if of.Image == image {
			return of.Release
		}
	}
	return ""
}

// isPublished reports whether an AMI is one that a stream names.
func isPublished(images *BootImages, ami string) bool {
	for _, s := range images.all() {
		for _, arch := range s.Architectures {
			if (aws{}).versionIn(&arch, ami) != "" {
				return true
			}
		}
	}
	return false
}

// isRecorded reports whether a resource was given an AMI, or was allowed to be given another in its
// place: that was the stream's once, also where no one can say whose it is now.
func isRecorded(history []mcfgv1alpha1.BootImageHistoryDetail, ami string) bool {
	return slices.ContainsFunc(history, func(entry mcfgv1alpha1.BootImageHistoryDetail) bool { return entry.Image == ami })
}
