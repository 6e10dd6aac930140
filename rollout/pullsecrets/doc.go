// Package pullsecrets lets node agents read the secrets that MachineOSConfigs name for nodes
// (spec.currentImagePullSecret), and no others: it keeps one Role in step with those names.
//
// Rule: no secret is copied here, and of one that is read only the type matters. The Role says all
// that agents may read, and the API server holds them to it.
package pullsecrets
