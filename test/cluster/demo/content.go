package demo

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/fixtures"
)

// The package that the Containerfile installs, and what it brings.
const (
	packageName = "hello"
	programPath = "/usr/bin/hello"
)

// contentPatience is how long an image may take that a pod builds: the pod pulls the base image
// first.
const contentPatience = 20 * time.Minute

// contentImage has a pod build an image with a package of Debian's, and changes a file on top of
// that.
func (s *story) contentImage(ctx context.Context) error {
	s.Printer.Note("\n5. A package of Debian's, by a Containerfile")
	s.told = 5
	if why := whyNoContent(s.HasNodes, s.kind); why != "" {
		s.Printer.Note("  %s", why)
		return nil
	}
	pkg, err := s.fetchPackage(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		s.Printer.Note("  The package can't be had here, so this is left out: %v", err)
		return nil
	}
	text, begin, err := s.applyContent(ctx, pkg)
	if err != nil {
		return err
	}
	s.Printer.Note("  %s, in four steps, of which the one that runs the Containerfile has no secret:", who(s.Builder))
	s.Printer.Note("\n%s\n", indent(indent(containerfileIn(text))))
	s.patience, s.steps = contentPatience, steps{}
	image, err := s.awaitImage(ctx)
	if err != nil {
		return err
	}
	s.printImage(image, begin)
	s.Printer.Note("  steps       %s", s.steps.took(image.at))
	s.Printer.Note("  time        %s from the Containerfile to the digest in status", took(image.at.Sub(begin)))
	s.Printer.Note("  on top      %d layers of %s above the base image's %d, with %d files, and %s is one of them",
		image.top.layers, size(image.top.bytes), len(s.base.layers), len(image.top.contents), programPath)
	s.printFile(image)
	if err := s.printTags(ctx); err != nil {
		return err
	}
	s.told++
	s.Printer.Note("\n%d. The file changes again: the package is not installed anew", s.told)
	return s.edit(ctx, fmt.Sprintf("Welcome to a worker that says hello, changed at %s.\n", time.Now().Format("15:04:05")))
}

// who builds, as a sentence begins.
func who(builder string) string {
	if builder == Pipeline {
		return "A PipelineRun of Tekton builds it"
	}
	return "A pod builds it"
}

// whyNoContent says why there is no act with a Containerfile; empty where there can be one.
func whyNoContent(hasNodes bool, kind fixtures.Kind) string {
	switch {
	case !hasNodes:
		return "Left out: a Containerfile is built in a pod, and a control plane has no node to run one. As root, the demo shows this too."
	case kind != fixtures.Full:
		return "Left out: the " + string(kind) + " OS image has no dpkg to install a package with. The full one has."
	}
	return ""
}

// fetchPackage gets the package from Debian, once.
func (s *story) fetchPackage(ctx context.Context) (pkg *fixtures.Package, err error) {
	err = s.Printer.Do("package "+packageName, func(step *progress.Step) error {
		pkg, err = s.Stack.FetchPackage(ctx, packageName, step.Detail)
		return err
	})
	return pkg, err
}

// applyContent applies the ConfigMap with Containerfile and package, and a MachineOSConfig that
// names it.
func (s *story) applyContent(ctx context.Context, pkg *fixtures.Package) (configMap string, begin time.Time, err error) {
	content, err := os.ReadFile(pkg.File)
	if err != nil {
		return "", begin, err
	}
	s.content = base64.StdEncoding.EncodeToString(content)
	var texts, paths []string
	for _, name := range []string{imageFile, configFile} {
		text, err := write(s.dir, name, s.facts())
		if err != nil {
			return "", begin, err
		}
		texts, paths = append(texts, text), append(paths, "-f "+s.short(filepath.Join(s.dir, name)))
	}
	s.Printer.Note("  $ kubectl apply --server-side --force-conflicts %s", strings.Join(paths, " "))
	begin = time.Now()
	for _, text := range texts {
		did, err := apply(ctx, s.dynamic, text)
		if err != nil {
			return "", begin, err
		}
		s.Printer.Note("  %-18s %-12s  %s", did.object.GetKind(), did.object.GetName(), did.did)
	}
	s.Printer.Note("  The ConfigMap has the Containerfile, and %s %s as a file beside it. The MachineOSConfig names it.", packageName, pkg.Version)
	return texts[0], begin, nil
}

// containerfileIn is the Containerfile in the text of the ConfigMap.
func containerfileIn(configMap string) string {
	_, rest, _ := strings.Cut(configMap, "Containerfile: |\n")
	lines, _, _ := strings.Cut(rest, "\nbinaryData:")
	return strings.TrimPrefix(strings.ReplaceAll("\n"+lines, "\n    ", "\n"), "\n")
}

// steps are those of a build pod, as the MachineOSConfig told of them.
type steps struct {
	names []string
	since []time.Time
}

var stepText = regexp.MustCompile(`\bstep (fetch|build|export|push)\b`)

// see notes which step an object speaks of.
func (s *steps) see(said string, now time.Time) {
	found := stepText.FindStringSubmatch(said)
	if len(found) == 0 || len(s.names) > 0 && s.names[len(s.names)-1] == found[1] {
		return
	}
	s.names, s.since = append(s.names, found[1]), append(s.since, now)
}

// took says how long each took, the last one up to the end.
func (s *steps) took(end time.Time) string {
	if len(s.names) == 0 {
		return "none: the registry has what the Containerfile makes"
	}
	texts := make([]string, len(s.names))
	for i, name := range s.names {
		until := end
		if i+1 < len(s.names) {
			until = s.since[i+1]
		}
		texts[i] = name + " " + took(until.Sub(s.since[i]))
	}
	return strings.Join(texts, ", ")
}
