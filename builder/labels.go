package builder

import "k8s.io/apimachinery/pkg/util/validation"

// validLabels leaves out what is no value of a label, such as a name of more than 63 characters:
// labels are for finding objects by, and everything that matters is in spec too.
func validLabels(labels map[string]string) map[string]string {
	valid := map[string]string{}
	for key, value := range labels {
		if len(validation.IsValidLabelValue(value)) == 0 {
			valid[key] = value
		}
	}
	return valid
}
