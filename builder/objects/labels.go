package objects

import (
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// FirstOf is the first platform of an index, the zero one of a single image.
func FirstOf(platforms []v1.Platform) v1.Platform {
	if len(platforms) == 0 {
		return v1.Platform{}
	}
	return platforms[0]
}

// ValidLabels leaves out what is no value of a label, such as a name of more than 63 characters:
// labels are for finding objects by, and everything that matters is in spec too.
func ValidLabels(labels map[string]string) map[string]string {
	valid := map[string]string{}
	for key, value := range labels {
		if len(validation.IsValidLabelValue(value)) == 0 {
			valid[key] = value
		}
	}
	return valid
}
