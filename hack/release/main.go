package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/layerwright/layerwright/hack/release/images"
	"github.com/layerwright/layerwright/hack/release/push"
	"github.com/layerwright/layerwright/hack/release/sums"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New("the commands are check, build and publish")
	}
	flags := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	dist := flags.String("dist", "dist", "`folder` of the release")
	switch args[0] {
	case "check", "build":
		o := buildOptions{}
		o.addFlags(flags)
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if args[0] == "check" {
			_, err := newRelease(ctx, *dist, o)
			return err
		}
		return build(ctx, *dist, o, stderr)
	case "publish":
		registry := push.Registry{}
		registry.AddFlags(flags)
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return publish(ctx, *dist, registry, stdout, stderr)
	}
	return fmt.Errorf("unknown command %q: the commands are check, build and publish", args[0])
}

// publish pushes the images, and writes manifests that name them where they are now.
func publish(ctx context.Context, dist string, registry push.Registry, stdout, stderr io.Writer) error {
	if registry.To == "" {
		return errors.New("name the registry: make publish REGISTRY=registry.example.com/layerwright")
	}
	if _, err := sums.Check(filepath.Join(dist, releasedFolder), nil); err != nil {
		return fmt.Errorf("verifying the release, which `make release` makes: %w", err)
	}
	options, err := registry.Options()
	if err != nil {
		return err
	}
	progress := func(image string) { _, _ = fmt.Fprintln(stderr, "pushing", image) }
	pushed, err := push.Images(ctx, filepath.Join(dist, releasedFolder, "images"), registry.To, progress, options...)
	if err != nil {
		return err
	}
	manifests := filepath.Join(dist, "published")
	if err := push.Manifests(filepath.Join(dist, releasedFolder, "manifests"), manifests, pushed); err != nil {
		return err
	}
	for _, layout := range []string{filepath.Base(images.Controller), filepath.Base(images.Agent), filepath.Base(images.Builder)} {
		_, _ = fmt.Fprintln(stdout, pushed[layout])
	}
	_, err = fmt.Fprintf(stdout, "\nInstall it with:\n\n  kubectl apply --server-side -f %s\n", filepath.Join(manifests, push.InstallFile))
	return err
}
