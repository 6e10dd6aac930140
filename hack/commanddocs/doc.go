// Command commanddocs writes a page with the help texts of programs and of all
// their sub-commands, so that the page can't differ from what users see.
//
//	go run ./hack/commanddocs -o docs/commands.md bin/layerwright bin/cluster
package main
