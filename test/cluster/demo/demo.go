package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	mcfgclient "github.com/layerwright/layerwright/client/clientset/typed/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
)

// What the objects are about.
const (
	poolName   = "worker"
	configName = "worker"
	motdPath   = "/etc/motd"
	// motd is what the file says first, and again at the start of every run.
	motd = "Welcome to a worker.\n"
)

// stream is the one that tests and benchmarks use too, so that its image is made once.
const stream = fixtures.RHEL9

// What can build a Containerfile.
const (
	Job      = "Job"
	Pipeline = "Pipeline"
)

// Options say where the story is told.
type Options struct {
	// Stack is a cluster that is up, with registry and controller.
	Stack *stack.Stack
	// HasNodes says that it is a whole cluster and not a control plane alone.
	HasNodes bool
	// HasHosts says that its nodes have hosts that can be updated.
	HasHosts bool
	// Guest is the node that boots the image in the last act, a virtual machine; empty where those
	// nodes do that are processes.
	Guest string
	// Base is the base OS image; empty for the full one, and the tiny one where that can't be made.
	Base fixtures.Kind
	// Builder is what builds a Containerfile, Job or Pipeline.
	Builder string
	// Program is how this program is called, with the flags that name the cluster, and Make how
	// make is.
	Program, Make string
	// Printer shows it.
	Printer *progress.Printer
}

// story is one run.
type story struct {
	Options
	objects mcfgclient.MachineconfigurationV1Interface
	dynamic dynamic.Interface
	clients kubernetes.Interface
	images  images
	// pusher are the options of whoever may push.
	pusher func(context.Context) []remote.Option
	dir    string
	// patience is how long a wait may take, stalledPatience how long an object may be stalled
	// meanwhile.
	patience, stalledPatience time.Duration
	// kind is the base OS image's.
	kind fixtures.Kind
	// repository is where images go; base and baseTag are the OS image below them.
	repository, baseTag string
	base                *manifestFacts
	// text is the content of /etc/motd as it is now, and content a package in base64 if that is in
	// the image.
	text, content string
	// rollsOut reports whether images go to the nodes as soon as they are made.
	rollsOut bool
	// steps are those of the build pod.
	steps steps
	// told is how many acts there have been, and last the image of the last one.
	told int
	last string
}

// Run tells the story. What it made stays.
func Run(ctx context.Context, options Options) error {
	s := &story{
		Options: options, dir: filepath.Join(options.Stack.Dir(), "demo"), text: motd,
		patience: patience, stalledPatience: stalledPatience,
	}
	registry, err := options.Stack.Registry(ctx)
	if err != nil {
		return err
	}
	s.images.options = func(ctx context.Context) []remote.Option { return registry.Options(ctx, "pull") }
	s.pusher = func(ctx context.Context) []remote.Option { return registry.Options(ctx, "push") }
	s.repository = registry.Host + "/os/" + poolName
	config, err := options.Stack.Config()
	if err != nil {
		return err
	}
	if s.objects, err = mcfgclient.NewForConfig(config); err != nil {
		return err
	}
	if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	if s.clients, err = options.Stack.Clients(); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{s.pushBase, s.applyAll, s.firstImage, s.secondImage, s.contentImage, s.signedImage, s.rollOut} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	s.printNext()
	return nil
}

// pushBase brings the OS image into the registry.
func (s *story) pushBase(ctx context.Context) error {
	s.Printer.Note("\n1. A base OS image, as a distribution would publish it")
	kind := s.Base
	if kind == "" {
		kind = fixtures.Full
	}
	err := s.push(ctx, kind)
	if err != nil && s.Base == "" && ctx.Err() == nil {
		s.Printer.Note("  The full image can't be made here, so this is the tiny one: %v", err)
		kind = fixtures.Tiny
		err = s.push(ctx, kind)
	}
	if err != nil {
		return fmt.Errorf("pushing the %s base OS image: %w; it is made from Debian's packages, and what is made is kept", kind, err)
	}
	s.kind = kind
	s.Printer.Note("  %s, %d layers, %s", s.baseTag, len(s.base.layers), size(s.base.bytes))
	return nil
}

func (s *story) push(ctx context.Context, kind fixtures.Kind) error {
	return s.Printer.Do(string(kind)+" base OS image", func(step *progress.Step) error {
		references, err := s.Stack.PushFixtures(ctx, kind, []fixtures.Stream{stream}, step.Detail)
		if err != nil {
			return err
		}
		pinned := references.OS[stream]
		s.baseTag = pinned.Repository.Tag(string(kind)).String()
		s.base, err = s.images.facts(ctx, pinned.String())
		return err
	})
}

// applyAll applies the objects as they are at first.
func (s *story) applyAll(ctx context.Context) error {
	texts, err := writeAll(s.dir, s.facts())
	if err != nil {
		return err
	}
	s.Printer.Note("\n2. What an administrator applies")
	s.Printer.Note("  $ kubectl apply --server-side --force-conflicts -f %s", s.short(s.dir))
	s.Printer.Note("  %-18s %s and %s in namespace %s, the registry's accounts: there from the start", "Secret",
		stack.PullSecret, stack.PushSecret, stack.Namespace)
	for _, text := range texts {
		did, err := apply(ctx, s.dynamic, text)
		if err != nil {
			return err
		}
		s.Printer.Note("  %-18s %-8s  %s", did.object.GetKind(), did.object.GetName(), did.did)
	}
	s.Printer.Note("  The last one asks for images:\n")
	s.Printer.Note("%s", indent(indent(texts[len(texts)-1])))
	return nil
}

func (s *story) firstImage(ctx context.Context) error {
	s.Printer.Note("\n3. The image (the list of a base image's files is read once, which takes seconds)")
	begin := time.Now()
	if err := s.awaitRendered(ctx); err != nil {
		return err
	}
	image, err := s.awaitImage(ctx)
	if err != nil {
		return err
	}
	s.printImage(image, begin)
	s.Printer.Note("  on top      %d layer of %s above the base image's %d, with", image.top.layers, size(image.top.bytes), len(s.base.layers))
	for _, path := range image.top.paths {
		s.Printer.Note("                %s", path)
	}
	s.printFile(image)
	return s.printTags(ctx)
}

// facts are those of the objects as they are now.
func (s *story) facts() facts {
	f := newFacts(s.baseTag, s.repository)
	f.Builder = s.Builder
	f.Motd, f.Package, f.BuildOnly = dataURL(s.text), s.content, s.HasHosts && !s.rollsOut
	return f
}

func (s *story) secondImage(ctx context.Context) error {
	s.Printer.Note("\n4. One file changes")
	return s.edit(ctx, fmt.Sprintf("Welcome to a worker, changed at %s.\n", time.Now().Format("15:04:05")))
}

// edit changes /etc/motd, and shows the image that follows.
func (s *story) edit(ctx context.Context, now string) error {
	before := s.text
	s.text = now
	text, err := write(s.dir, motdFile, s.facts())
	if err != nil {
		return err
	}
	path := s.short(filepath.Join(s.dir, motdFile))
	s.Printer.Note("  - %s  + %s  $ kubectl apply --server-side --force-conflicts -f %s", before, s.text, path)
	begin := time.Now()
	if _, err := apply(ctx, s.dynamic, text); err != nil {
		return err
	}
	if err := s.awaitRendered(ctx); err != nil {
		return err
	}
	image, err := s.awaitImage(ctx)
	if err != nil {
		return err
	}
	s.printImage(image, begin)
	s.Printer.Note("  time        %s from the edit to the digest in status", took(image.at.Sub(begin)))
	s.printFile(image)
	return s.printTags(ctx)
}

func (s *story) awaitRendered(ctx context.Context) error {
	return s.Printer.Do("MachineConfigPool "+poolName+": configuration", func(step *progress.Step) error {
		_, err := s.rendered(ctx, step, dataURL(s.text))
		return err
	})
}

func (s *story) awaitImage(ctx context.Context) (image *made, err error) {
	err = s.Printer.Do("MachineOSConfig "+configName+": image", func(step *progress.Step) error {
		image, err = s.image(ctx, step, s.text)
		return err
	})
	return image, err
}

// printImage says which image it is, why it was made, and what that moved.
func (s *story) printImage(image *made, begin time.Time) {
	s.last = image.pullSpec
	s.Printer.Note("\n  Your image is %s\n", image.pullSpec)
	if image.build.CreationTimestamp.Time.Before(begin.Truncate(time.Second)) {
		s.Printer.Note("  why         nothing had to be made: the build %s of %s has the same inputs",
			image.build.Name, image.build.CreationTimestamp.Local().Format("15:04:05"))
		return
	}
	s.Printer.Note("  why         %s", image.build.Status.Why)
	s.Printer.Note("  moved       %s", moved(finalMessage(image.build), s.base.bytes))
}

// printFile shows the file, as it is in the image.
func (s *story) printFile(image *made) {
	s.Printer.Note("  %-11s %s", motdPath, strings.TrimSuffix(image.top.contents[motdPath], "\n"))
}

// printTags lists the images that the repository has.
func (s *story) printTags(ctx context.Context) error {
	tags, err := s.images.tags(ctx, s.repository)
	if err != nil {
		return err
	}
	s.Printer.Note("  tags        of %s:", s.repository)
	for _, t := range tags {
		if strings.HasPrefix(t.name, "sha256-") {
			continue // what is attached to an image
		}
		s.Printer.Note("                %-40s %.19s", t.name, t.digest)
	}
	return nil
}

// short shortens a path for people.
func (*story) short(path string) string {
	folder, err := os.UserHomeDir()
	if err != nil {
		folder = ""
	}
	return home(path, folder)
}

// advice is where to look when something is wrong.
func (s *story) advice() []string {
	logs := "kubectl -n " + stack.Namespace + " logs deploy/" + stack.ControllerName
	if !s.HasNodes {
		logs = s.Program + " logs " + stack.ControllerName
	}
	return []string{
		`What each reason asks for is in docs/builds.md, "Conditions, and what to do". More:`,
		fmt.Sprintf("  eval \"$(%s env)\"; kubectl describe machineosconfig %s; %s", s.Program, configName, logs),
	}
}

// printNext ends with what to try.
func (s *story) printNext() {
	s.Printer.Note("\nWhat to try next, after  eval \"$(%s env)\"", s.Program)
	for _, next := range [][2]string{
		{"kubectl get machineconfigpool,machineosconfig,machineosbuild,machineosimage", "how it stands"},
		{"kubectl describe machineosconfig " + configName, "conditions and events"},
		{"kubectl edit machineconfig 50-motd", "another image, seconds later, also on nodes that can be updated"},
		{"kubectl -n " + stack.Namespace + " edit configmap worker-image", "another Containerfile, where there are nodes"},
		{"kubectl annotate machineosconfig " + configName + " machineconfiguration.openshift.io/rebuildImage=", "make it again"},
		{"bin/layerwright render -f " + s.short(s.dir) + " --registry-ca $LAYERWRIGHT_REGISTRY_CA", "the same, foretold from files"},
		{s.Make + " down", "everything is gone but the cache"},
	} {
		s.Printer.Note("  %s\n      %s", next[0], next[1])
	}
}
