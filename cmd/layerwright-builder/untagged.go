//go:build !(cgo && containers_image_openpgp && exclude_graphdriver_btrfs)

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, `layerwright-builder: this binary was built without Buildah; build it with "make bin/layerwright-builder"`)
	os.Exit(2)
}
