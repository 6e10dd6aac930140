package deploy

import "embed"

// Files are the kustomizations of this folder, for programs that run without a checkout.
//
//go:embed base components crds openshift-machine-api overlays policies
var Files embed.FS
