package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

//go:embed glossary.txt
var glossaryText string

//go:embed unchecked.txt
var uncheckedText string

// skipped are files that are generated, or never rewritten. What they are generated from is checked.
var skipped = []string{"client/", "docs/adr/", "docs/api.md", "docs/commands.md", "hack/words/", "api/*/*/zz_generated.*"}

func main() {
	wrap := flag.Bool("wrap", false, "wrap comment lines that are too long, in place of checking")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: words [-wrap] [FOLDER...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*wrap, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}

// run checks or wraps the files of some folders; without any, all of the repository.
func run(wrap bool, folders []string, out io.Writer) error {
	glossary, err := parseGlossary(glossaryText)
	if err != nil {
		return err
	}
	files, err := tracked(folders)
	if err != nil {
		return err
	}
	unchecked := lines(uncheckedText)
	found := 0
	for _, file := range files {
		if isBelow(file, skipped) {
			continue
		}
		text, err := os.ReadFile(file) //nolint:gosec // the path or index is the program's own
		if err != nil {
			return err
		}
		switch {
		case wrap && strings.HasSuffix(file, ".go"):
			if err := rewrite(file, text); err != nil {
				return err
			}
		case !wrap && !isBelow(file, unchecked):
			for _, f := range check(file, text, glossary) {
				found++
				if _, err := fmt.Fprintln(out, f); err != nil {
					return err
				}
			}
		}
	}
	if found > 0 {
		return fmt.Errorf("%d findings: write the other words (hack/words/glossary.txt), or wrap comments with `go run ./hack/words -wrap FOLDER`", found)
	}
	return nil
}

// tracked are the Go files and the pages of some folders, as Git knows them.
func tracked(folders []string) ([]string, error) {
	if len(folders) == 0 {
		folders = []string{"."}
	}
	arguments := append([]string{"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "--"}, folders...)
	list, err := exec.Command("git", arguments...).Output() //nolint:gosec,noctx // a short command, with folders from the command line
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("git ls-files: %w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var files []string
	for name := range bytes.SplitSeq(list, []byte{0}) {
		file := string(name)
		if !strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, ".md") {
			continue
		}
		if _, err := os.Stat(file); err == nil { // a removed file stays listed until the commit
			files = append(files, file)
		}
	}
	return files, nil
}

// isBelow reports whether a file matches one of the places, or is in one that ends with a slash. Each
// part of a place is a pattern.
func isBelow(file string, places []string) bool {
	names := strings.Split(file, "/")
	return slices.ContainsFunc(places, func(place string) bool {
		folder, below := strings.CutSuffix(place, "/")
		parts := strings.Split(folder, "/")
		if len(parts) > len(names) || !below && len(parts) < len(names) {
			return false
		}
		matches, err := path.Match(folder, strings.Join(names[:len(parts)], "/"))
		return matches && err == nil
	})
}

// lines are those of a list that are neither empty nor comments.
func lines(text string) (all []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

func rewrite(file string, text []byte) error {
	wrapped := wrapComments(text)
	if bytes.Equal(wrapped, text) {
		return nil
	}
	return os.WriteFile(file, wrapped, 0o644) //nolint:gosec // source code
}
