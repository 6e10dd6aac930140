// Package buildah runs the real Buildah for tests and benchmarks, as `bin/cluster tools` builds it:
// with overlay storage and settings in a folder of the test's own, so that it neither needs nor
// changes anything of the machine. It needs root.
package buildah
