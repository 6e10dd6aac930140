//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package main

import (
	"context"
	"os"

	"github.com/layerwright/layerwright/builder/engine"
)

func main() {
	if engine.InitReexec() { // this is one of Buildah's own processes
		return
	}
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
