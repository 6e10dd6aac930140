// Package quota says what to do where the API server refuses a pod because of a ResourceQuota or a
// LimitRange: which object it is, which resource is at fault, and which field to set.
//
// Rule: it is pure, and knows the sentences of Kubernetes' own admission alone.
package quota
