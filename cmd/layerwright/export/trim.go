package export

// lastApplied is what kubectl apply keeps of an object in it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Trim takes out of an object what an API server or the controller has added, so that it can be
// applied elsewhere.
func Trim(object map[string]any) {
	delete(object, "status")
	metadata, is := object["metadata"].(map[string]any)
	if !is {
		return
	}
	for _, field := range []string{"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"} {
		delete(metadata, field)
	}
	annotations, is := metadata["annotations"].(map[string]any)
	if !is {
		return
	}
	delete(annotations, lastApplied)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}
