//go:build !containers_image_openpgp

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "this program was built without the tag containers_image_openpgp")
	os.Exit(1)
}
