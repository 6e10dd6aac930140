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
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

func main() {
	each := flag.String("time", "10s", "how long each target runs, or how often it is called, its seeds included: 500x")
	show := flag.Bool("print-findings", false, "start from the seeds alone, print findings at the end, and do not fail for them")
	flag.Parse()
	if err := run(context.Background(), os.DirFS("."), options{*each, *show}, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

type options struct {
	// each is how long a target runs, or how often it is called.
	each string
	// printFindings is for a run that is about something else than what it may find by chance. It
	// does without what others have found: every target would call all of it first.
	printFindings bool
}

func run(ctx context.Context, tree fs.FS, o options, out io.Writer) error {
	targets, err := find(tree)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return errors.New("there is no fuzz target here; run it in the module's folder")
	}
	dir, err := os.MkdirTemp("", "fuzz-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	corpus := filepath.Join(dir, "corpus")
	if !o.printFindings {
		if corpus, err = kept(ctx); err != nil {
			return err
		}
	}
	binaries, err := compile(ctx, dir, corpus, targets)
	if err != nil {
		return err
	}
	var findings []string
	var printing sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for _, t := range targets {
		group.Go(func() error {
			said, err := try(t, func() (string, error) { return binaries[t.folder].fuzz(ctx, t, o.each) })
			if err != nil && ctx.Err() != nil {
				return err // another has failed, and says why
			}
			printing.Lock()
			defer printing.Unlock()
			_, unprinted := fmt.Fprintf(out, "%s in %s\n%s", t.name, t.folder, said)
			if found := findingOf(os.DirFS(t.folder), said); o.printFindings && found != "" {
				findings = append(findings, fmt.Sprintf("%v\n%s", err, found))
				err = nil
			}
			return errors.Join(err, unprinted)
		})
	}
	err = group.Wait()
	for _, found := range findings {
		_, unprinted := fmt.Fprintf(out, "\nFINDING, to be mended with its input as a seed: %s\n", found)
		err = errors.Join(err, unprinted)
	}
	return err
}

// written finds the file with the input of a finding.
var written = regexp.MustCompile(`Failing input written to (testdata/fuzz/\w+/\w+)`)

// findingOf is the file of a finding and what is in it; empty if a target had none.
func findingOf(folder fs.FS, said string) string {
	file := written.FindStringSubmatch(said)
	if file == nil {
		return ""
	}
	input, err := fs.ReadFile(folder, file[1])
	if err != nil {
		return file[1] + ": " + err.Error()
	}
	return file[1] + "\n" + string(input)
}

// A target is one function to fuzz.
type target struct {
	// folder is that of its package, with slashes and relative to the module's.
	folder string
	name   string
}

// function finds the name of a fuzz target in a file of tests.
var function = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// find finds the targets of a tree of files, in the order of their paths. Modules below it are not
// of this one.
func find(tree fs.FS) (targets []target, err error) {
	err = fs.WalkDir(tree, ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if _, err := fs.Stat(tree, file+"/go.mod"); err == nil && file != "." {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(tree, file)
		if err != nil {
			return err
		}
		for _, found := range function.FindAllSubmatch(source, -1) {
			targets = append(targets, target{folder: path.Dir(file), name: string(found[1])})
		}
		return nil
	})
	return targets, err
}

// binary is the compiled tests of a package, made for fuzzing.
type binary struct {
	path string
	// corpus is where the inputs go that were worth something.
	corpus string
}

// kept is the folder where Go keeps the inputs of this module that were worth something.
func kept(ctx context.Context) (string, error) {
	cache, err := output(ctx, "go", "env", "GOCACHE")
	if err != nil {
		return "", err
	}
	module, err := output(ctx, "go", "list", "-m")
	return filepath.Join(cache, "fuzz", module), err
}

// compile compiles the packages of the targets: the first alone, since side by side what all have
// in common would be compiled twice, and then as many at once as there are CPUs.
func compile(ctx context.Context, dir, corpus string, targets []target) (map[string]binary, error) {
	out := map[string]binary{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for _, t := range targets {
		if _, done := out[t.folder]; done {
			continue
		}
		b := binary{path: filepath.Join(dir, fmt.Sprintf("%d.test", len(out))), corpus: filepath.Join(corpus, t.folder)}
		out[t.folder] = b
		build := func() error {
			_, err := output(ctx, "go", "test", "-c", "-fuzz=.", "-ldflags=-s -w", "-o", b.path, "./"+t.folder)
			return err
		}
		if len(out) > 1 {
			group.Go(build)
		} else if err := build(); err != nil {
			return nil, err
		}
	}
	return out, group.Wait()
}

// output runs a command and gives what it prints.
func output(ctx context.Context, program string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, arguments...) //nolint:gosec // Go, with names of our own packages
	said := &bytes.Buffer{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, said)
	}
	return strings.TrimSpace(string(out)), nil
}

// fuzz runs a target once, and gives what it prints. Making large inputs smaller is limited:
// without that it takes all of the time, and Go calls it a failure when the time is over.
func (b binary) fuzz(ctx context.Context, t target, each string) (string, error) {
	cmd := exec.CommandContext(ctx, b.path, "-test.run=^$", "-test.fuzz=^"+t.name+"$", "-test.fuzzcachedir="+b.corpus, "-test.fuzztime="+each, //nolint:gosec // made here
		"-test.fuzzminimizetime=100x", "-test.parallel=1")
	cmd.Dir = filepath.FromSlash(t.folder)
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// try fuzzes a target, and once more if the first time failed for nothing but Go's own fault at the
// end of its time. It gives all that was printed.
func try(t target, fuzz func() (string, error)) (string, error) {
	said, err := fuzz()
	if err != nil && onlyTimeWasOver(said) {
		said += t.name + ": no finding; Go took the end of its time for a failure (https://go.dev/issue/75804): once more\n"
		var again string
		again, err = fuzz()
		said += again
	}
	if err != nil {
		return said, fmt.Errorf("%s in %s: %w", t.name, t.folder, err)
	}
	return said, nil
}

// overdue is how a target ends that has found nothing and fails all the same: where the time of a
// context is over, for a moment the context itself says so and those derived from it don't, and Go
// before 1.27 compares with one of these.
var overdue = regexp.MustCompile(`--- FAIL: \w+ \([\d.]+s\)\n    context deadline exceeded\nFAIL\n$`)

// onlyTimeWasOver says, from all that a failed target printed, whether its time being over is all
// that is wrong. A finding names the file that it was written to, and is a failure within that of
// the target.
func onlyTimeWasOver(said string) bool {
	return overdue.MatchString(said) && strings.Count(said, "--- FAIL") == 1 && !strings.Contains(said, "Failing input written to")
}
