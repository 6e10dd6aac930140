package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// slowest is how many tests and packages are printed.
const slowest = 15

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cireport FOLDER")
		os.Exit(2)
	}
	if err := run(os.DirFS(os.Args[1]), os.Getenv("LAYERWRIGHT_CI_REPORT"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cireport:", err)
		os.Exit(1)
	}
}

// figures are how long everything took.
type figures struct {
	Stages   []timed `json:"stages"`
	Packages []timed `json:"packages"`
	Tests    []timed `json:"tests"`
}

// timed is something that took some seconds.
type timed struct {
	Result  string  `json:"result"`
	Seconds float64 `json:"seconds"`
	Name    string  `json:"name"`
}

func run(folder fs.FS, report string, out io.Writer) error {
	all, err := read(folder)
	if err != nil {
		return err
	}
	if err := all.print(out); err != nil || report == "" {
		return err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(report, append(text, '\n'), 0o644) //nolint:gosec // figures, for anybody
}

// read reads the figures, the longest tests and packages first.
func read(folder fs.FS) (*figures, error) {
	stages, err := fs.ReadFile(folder, "stages")
	if err != nil {
		return nil, err
	}
	all := &figures{}
	for line := range strings.Lines(string(stages)) {
		fields := strings.SplitN(strings.TrimSpace(line), "\t", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("stages: %q is not a result, seconds and a name", line)
		}
		seconds, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return nil, fmt.Errorf("stages: %w", err)
		}
		all.Stages = append(all.Stages, timed{fields[0], seconds, fields[2]})
	}
	files, err := fs.Glob(folder, "*.json")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		if err := all.readEvents(folder, name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, list := range [][]timed{all.Packages, all.Tests} {
		slices.SortStableFunc(list, func(a, b timed) int { return cmp.Compare(b.Seconds, a.Seconds) })
	}
	return all, nil
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test string
	Elapsed               float64
}

// readEvents reads the ends of packages, of their tests, and of the parts of these. A run that was
// cut off may end in the middle of a line.
func (f *figures) readEvents(folder fs.FS, name string) error {
	file, err := folder.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for decoder := json.NewDecoder(bufio.NewReader(file)); ; {
		var e event
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
		if e.Action != "pass" && e.Action != "fail" {
			continue
		}
		short := strings.TrimPrefix(e.Package, "github.com/layerwright/layerwright/")
		switch {
		case e.Test == "":
			f.Packages = append(f.Packages, timed{e.Action, e.Elapsed, short})
		case strings.Count(e.Test, "/") <= 1:
			f.Tests = append(f.Tests, timed{e.Action, e.Elapsed, short + "." + e.Test})
		}
	}
}

func (f *figures) print(out io.Writer) error {
	var text strings.Builder
	for _, part := range []struct {
		title string
		of    []timed
	}{
		{"slowest tests", f.Tests[:min(slowest, len(f.Tests))]},
		{"slowest packages", f.Packages[:min(slowest, len(f.Packages))]},
		{"stages", f.Stages},
	} {
		fmt.Fprintf(&text, "\n=== %s\n", part.title)
		for _, t := range part.of {
			fmt.Fprintf(&text, "%-6s  %6.0f s  %s\n", t.Result, t.Seconds, t.Name)
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}
