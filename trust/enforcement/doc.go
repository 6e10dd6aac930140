// Package enforcement makes nodes refuse images that are not signed: with a ClusterImagePolicy
// where the cluster has that kind and it can say it, with a MachineConfig elsewhere.
//
// Rule: it writes these two kinds of objects and nothing else. What nodes read is made by
// trust/signaturepolicy; whose signatures are trusted is handed in.
package enforcement
