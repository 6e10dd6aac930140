package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	each := flag.Duration("time", 10*time.Second, "how long each target runs")
	flag.Parse()
	if err := run(context.Background(), os.DirFS("."), *each, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, tree fs.FS, each time.Duration, out io.Writer) error {
	targets, err := find(tree)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return errors.New("there is no fuzz target here; run it in the module's folder")
	}
	for _, t := range targets {
		if _, err := fmt.Fprintf(out, "%s in %s\n", t.name, t.folder); err != nil {
			return err
		}
		if err := try(t, out, func(out io.Writer) error { return t.fuzz(ctx, each, out) }); err != nil {
			return err
		}
	}
	return nil
}

// A target is one function to fuzz.
type target struct {
	// folder is that of its package, with slashes and relative to the module's.
	folder string
	name   string
}

// function finds the name of a fuzz target in a file of tests.
var function = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// find finds the targets of a tree of files, in the order of their paths. Modules below it are not of this one.
func find(tree fs.FS) (targets []target, err error) {
	return targets, fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if _, err := fs.Stat(tree, path+"/go.mod"); err == nil && path != "." {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		for _, found := range function.FindAllSubmatch(source, -1) {
			targets = append(targets, target{folder: filepath.ToSlash(filepath.Dir(path)), name: string(found[1])})
		}
		return nil
	})
}

// fuzz runs the target once. Making large inputs smaller is limited: without that it takes all of the time, and Go calls it a failure when the
// time is over.
func (t target) fuzz(ctx context.Context, each time.Duration, out io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+each.String(), "-fuzzminimizetime=100x", //nolint:gosec // names of our own functions
		"./"+t.folder)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd.Run()
}

// try fuzzes a target, and once more if the first time failed for nothing but Go's own fault at the end of its time.
func try(t target, out io.Writer, fuzz func(io.Writer) error) error {
	said := &bytes.Buffer{}
	err := fuzz(io.MultiWriter(out, said))
	if err != nil && onlyTimeWasOver(said.String()) {
		_, _ = fmt.Fprintf(out, "%s: no finding; Go took the end of its time for a failure (https://go.dev/issue/75804): once more\n", t.name)
		err = fuzz(out)
	}
	if err != nil {
		return fmt.Errorf("%s in %s: %w", t.name, t.folder, err)
	}
	return nil
}

// overdue is how a target ends that has found nothing and fails all the same: where the time of a context is over, for a moment the context itself
// says so and those derived from it don't, and Go before 1.27 compares with one of these.
var overdue = regexp.MustCompile(`--- FAIL: \w+ \([\d.]+s\)\n    context deadline exceeded\nFAIL\nexit status 1\nFAIL\t\S+\t[\d.]+s\n$`)

// onlyTimeWasOver says, from all that a failed target printed, whether its time being over is all that is wrong. A finding names the file that it
// was written to, and is a failure within that of the target.
func onlyTimeWasOver(said string) bool {
	return overdue.MatchString(said) && strings.Count(said, "--- FAIL") == 1 && !strings.Contains(said, "Failing input written to")
}
