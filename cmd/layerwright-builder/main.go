//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package main

import (
	"context"
	"os"

	"github.com/layerwright/layerwright/builder/engine/process"
)

func main() {
	ctx := context.Background()
	if process.InitReexec(ctx) { // this is one of Buildah's own processes
		return
	}
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
