package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// casesFolder has a folder for each case, whose expect.txt says how to try it and what is right.
var casesFolder = flag.String("cases", "testdata/cases", "folder with cases")

// expected is what an expect.txt says of what needs no cluster.
type expected struct {
	// file has the objects; empty where the case needs a cluster.
	file string
	// mayRefuse is a case in which a refusal is right too.
	mayRefuse bool
	// no are names of findings that there may not be.
	no     []string
	checks []claim
}

// claim is one about a file of the result.
type claim struct {
	file string
	// query is a path in JSON, or several in brackets; empty for an archive.
	query string
	// want is JSON, or "MODE PATH" of an archive; empty is anything.
	want []string
}

var (
	section  = regexp.MustCompile(`^[A-Z]{4,}`)
	rendered = regexp.MustCompile(`layerwright render .*?-f (\S+)`)
	findings = regexp.MustCompile(`no finding ((?:[A-Z]\w+(?:, | or )?)+)`)
	query    = regexp.MustCompile(`jq (?:-\w+ )?('[^']+'|\S+) /tmp/[^/\s]+/(\S+)\s*(?:(?:->|must print) *)?(.*)`)
	archive  = regexp.MustCompile(`tar -\w+ /tmp/[^/\s]+/(\S+)\s*->\s*([^(]*)`)
)

// readExpected finds what to try in an expect.txt: its section OFFLINE.
func readExpected(text string) expected {
	var out expected
	is := false
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if section.MatchString(line) {
			is = strings.HasPrefix(line, "OFFLINE")
		}
		if !is {
			continue
		}
		if found := rendered.FindStringSubmatch(line); found != nil {
			out.file = found[1]
		}
		out.mayRefuse = out.mayRefuse || strings.Contains(line, "Either refused")
		if found := findings.FindStringSubmatch(line); found != nil {
			out.no = append(out.no, strings.FieldsFunc(strings.ReplaceAll(found[1], " or ", " "), func(r rune) bool { return r == ' ' || r == ',' })...)
		}
		if found := archive.FindStringSubmatch(line); found != nil {
			out.checks = append(out.checks, claim{file: found[1], want: strings.Split(strings.TrimSpace(found[2]), ", ")})
		}
		if found := query.FindStringSubmatch(line); found != nil {
			want := found[3]
			if want == "" && i+1 < len(lines) {
				want = strings.TrimPrefix(strings.TrimSpace(lines[i+1]), "must print ")
			}
			one := claim{file: found[2], query: strings.Trim(found[1], "'")}
			var value json.RawMessage
			if json.NewDecoder(strings.NewReader(want)).Decode(&value) == nil {
				one.want = []string{string(value)}
			}
			out.checks = append(out.checks, one)
		}
	}
	return out
}

// wrong says what is not as it should be in a folder with results; empty where all is.
func (c claim) wrong(folder string) (string, error) {
	content, err := os.ReadFile(filepath.Join(folder, c.file))
	if err != nil {
		return "", err
	}
	if c.query == "" {
		return c.wrongIn(content)
	}
	var all any
	if err := json.Unmarshal(content, &all); err != nil {
		return "", fmt.Errorf("reading %s: %w", c.file, err)
	}
	got := look(all, c.query)
	if len(c.want) == 0 {
		if list, is := got.([]any); got == nil || is && len(list) == 0 {
			return fmt.Sprintf("%s of %s is empty", c.query, c.file), nil
		}
		return "", nil
	}
	var want any
	if err := json.Unmarshal([]byte(c.want[0]), &want); err != nil {
		return "", fmt.Errorf("reading what is expected: %w", err)
	}
	if !assert.ObjectsAreEqual(want, got) {
		text, err := json.Marshal(got)
		return fmt.Sprintf("%s of %s is %s and not %s", c.query, c.file, text, c.want[0]), err
	}
	return "", nil
}

// look follows a path, such as ".a.b", or several, such as "[.a,.b]".
func look(in any, query string) any {
	if inner, is := strings.CutPrefix(query, "["); is {
		var all []any
		for part := range strings.SplitSeq(strings.TrimSuffix(inner, "]"), ",") {
			all = append(all, look(in, part))
		}
		return all
	}
	for field := range strings.SplitSeq(strings.TrimPrefix(query, "."), ".") {
		object, _ := in.(map[string]any)
		in = object[field]
	}
	return in
}

// wrongIn looks for entries of an archive, with their modes.
func (c claim) wrongIn(content []byte) (string, error) {
	modes := map[string]string{}
	for archive := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", c.file, err)
		}
		modes[strings.Trim(header.Name, "/")] = header.FileInfo().Mode().String()
	}
	for _, want := range c.want {
		mode, path, _ := strings.Cut(want, " ")
		if got := modes[strings.Trim(path, "/")]; got != mode {
			return fmt.Sprintf("%s of %s has mode %q and not %s", path, c.file, got, mode), nil
		}
	}
	return "", nil
}

// try renders a case as its expect.txt says, with each of its Containerfiles, and says what is
// wrong.
func (e *expected) try(t *testing.T, folder, base, certificates string) string {
	t.Helper()
	containerfiles, err := filepath.Glob(filepath.Join(folder, "Containerfile*"))
	require.NoError(t, err)
	if len(containerfiles) == 0 {
		containerfiles = []string{""}
	}
	for _, containerfile := range containerfiles {
		output, name := t.TempDir(), ""
		args := []string{
			"render", "-f", filepath.Join(folder, e.file), "--base", base, "--registry-ca", certificates, "--cache-dir", t.TempDir(), "--output", output, "-o", "json",
		}
		if containerfile != "" {
			args, name = append(args, "--containerfile", containerfile), filepath.Base(containerfile)+": "
		}
		var stdout, stderr bytes.Buffer
		if code := execute(t.Context(), args, &stdout, &stderr); code != exitOK {
			if e.mayRefuse {
				continue
			}
			return fmt.Sprintf("%sexit %d: %s", name, code, strings.TrimSpace(stderr.String()))
		}
		for _, finding := range e.no {
			if strings.Contains(stdout.String(), finding) {
				return name + "finding " + finding
			}
		}
		for _, c := range e.checks {
			said, err := c.wrong(output)
			require.NoError(t, err)
			if said != "" {
				return name + said
			}
		}
	}
	return ""
}

// TestCases tries what people reported, as far as it needs no cluster: each case is right, or wrong
// and why.
func TestCases(t *testing.T) {
	t.Parallel()
	image, certificates := serveFixture(t)
	texts, err := filepath.Glob(filepath.Join(*casesFolder, "*", "expect.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, texts)
	for _, file := range texts {
		folder := filepath.Dir(file)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			e := readExpected(string(text))
			if e.file == "" {
				t.Logf("%s: needs a cluster", filepath.Base(folder))
				return
			}
			if said := e.try(t, folder, image, certificates); said != "" {
				t.Fatalf("%s: wrong: %s", filepath.Base(folder), said)
			}
			t.Logf("%s: right", filepath.Base(folder))
		})
	}
}

// TestWrongCases has expectations that are not met.
func TestWrongCases(t *testing.T) {
	t.Parallel()
	image, certificates := serveFixture(t)
	for text, want := range map[string]string{
		"jq -c .kernelArguments.add /tmp/x/amd64/node-state.json\n  must print [\"z=4\"]": `is ["z=4","z=4"] and not ["z=4"]`,
		"jq .nothing /tmp/x/image.json -> says something":                                 ".nothing of image.json is empty",
		"tar -tvf /tmp/x/amd64/config.tar -> -rwxr-xr-x etc/none":                         `etc/none of amd64/config.tar has mode ""`,
	} {
		e := readExpected("OFFLINE: bin/layerwright render -f mc.yaml\n  " + text + "\nFLEET: jq .x /tmp/x/y\n")
		require.Len(t, e.checks, 1)
		assert.Contains(t, e.try(t, "testdata/cases/twice", image, certificates), want)
	}
	e := readExpected("OFFLINE: bin/layerwright render -f none.yaml, no finding Alpha or Beta\n")
	assert.Equal(t, []string{"Alpha", "Beta"}, e.no)
	assert.Contains(t, e.try(t, "testdata/cases/twice", image, certificates), "exit 1: ")
	assert.Empty(t, readExpected("CONTROLPLANE: kubectl apply -f mc.yaml\n").file)
}
