package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/internal/archtest"
)

func main() {
	dir := flag.String("dir", ".", "the module's folder")
	most := flag.Int("most", 10, "how many packages to print of each kind") //nolint:mnd // fits a screen
	flag.Parse()
	if err := run(os.Stdout, *dir, *most); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func run(to io.Writer, dir string, most int) error {
	all, err := archtest.Measure(dir, archtest.Module)
	if err != nil {
		return err
	}
	lines, handed, places := 0, 0, 0
	for _, f := range all {
		if !strings.HasPrefix(f.Folder, "test/") && !strings.HasPrefix(f.Folder, "hack/") {
			lines += f.Lines
		}
		handed += f.HandedOn
		places += f.Places
	}
	figures := []struct {
		name string
		of   func(archtest.Figures) int
	}{
		{"lines of a package", func(f archtest.Figures) int { return f.Lines }},
		{"files that need each other in a package", func(f archtest.Figures) int { return len(f.Knot) }},
		{"packages of this module that a package imports", func(f archtest.Figures) int { return len(f.Imports) }},
	}
	for _, figure := range figures {
		slices.SortStableFunc(all, func(a, b archtest.Figures) int { return cmp.Compare(figure.of(b), figure.of(a)) })
		_, _ = fmt.Fprintf(to, "%s:\n", figure.name)
		for _, f := range all[:min(most, len(all))] {
			_, _ = fmt.Fprintf(to, "%8d  %s\n", figure.of(f), f.Folder)
		}
	}
	_, err = fmt.Fprintf(to, "a build's scope is handed on: %d times, to %d functions\nlines without tests, test/ and hack/: %d\n", handed, places, lines)
	return err
}
