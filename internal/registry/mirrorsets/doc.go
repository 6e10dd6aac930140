// Package mirrorsets reads what a cluster says of mirrors: OpenShift's ImageDigestMirrorSets,
// ImageTagMirrorSets and ImageContentSourcePolicies, where it has these kinds, and Layerwright's
// ConfigMap.
//
// Rule: it says what is written, and decides nothing; package mirrors does. A ConfigMap names
// mirrors of digests alone: what a tag stands for is for the cluster's own objects to say.
package mirrorsets
