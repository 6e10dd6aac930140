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

	"github.com/layerwright/layerwright/hack/release/push"
	"github.com/layerwright/layerwright/hack/release/sums"
)

// What a bundle has beside the program.
const (
	released  = "release"   // what was checked: images and manifests
	images    = "images"    // in released
	manifests = "manifests" // in released; and beside it, for the registry
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are the flags.
type options struct {
	from, out, key string
	registry       push.Registry
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	const failure, usage = 1, 2
	o := options{}
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(stderr, "usage: ./load --to registry.example.com/layerwright [--ca ca.crt] [--key cosign.pub]\n\n"+
			"Pushes the images of this bundle to a registry, and writes manifests that name them there.\nAfter an interruption run it again.\n\nFlags:")
		flags.PrintDefaults()
	}
	o.registry.AddFlags(flags)
	flags.StringVar(&o.key, "key", "", "`file` with the public key that has to have signed the release (default: the one in the bundle, which you then compare)")
	flags.StringVar(&o.from, "from", "", "unpacked `folder` of the bundle (default: the one that the program is in)")
	flags.StringVar(&o.out, "out", "", "`folder` to write manifests to (default: "+manifests+" in the bundle)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return usage
	}
	if o.registry.To == "" || flags.NArg() > 0 {
		_, _ = fmt.Fprintln(stderr, "load: name the registry with --to, such as --to registry.example.com/layerwright; it takes no other arguments")
		return usage
	}
	if err := o.run(ctx, stdout, stderr); err != nil {
		_, _ = fmt.Fprintln(stderr, "load:", err)
		return failure
	}
	return 0
}

func (o options) run(ctx context.Context, stdout, stderr io.Writer) error {
	if o.from == "" {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		o.from = filepath.Dir(filepath.Dir(program)) // it is in bin/
	}
	if o.out == "" {
		o.out = filepath.Join(o.from, manifests)
	}
	if err := o.verify(stderr); err != nil {
		return err
	}
	remote, err := o.registry.Options()
	if err != nil {
		return err
	}
	progress := func(image string) { _, _ = fmt.Fprintln(stderr, "pushing", image) }
	pushed, err := push.Images(ctx, filepath.Join(o.from, released, images), o.registry.To, progress, remote...)
	if err != nil {
		return err
	}
	if err := push.Manifests(filepath.Join(o.from, released, manifests), o.out, pushed); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "The images are in %s. Install them with:\n\n  kubectl apply --server-side -f %s\n", o.registry.To, filepath.Join(o.out, push.InstallFile))
	return err
}

// verify makes sure that the release is complete, as it was made, and by the key.
func (o options) verify(stderr io.Writer) error {
	var key []byte
	if o.key != "" {
		var err error
		if key, err = os.ReadFile(o.key); err != nil {
			return fmt.Errorf("reading the public key: %w", err)
		}
	}
	fingerprint, err := sums.Check(filepath.Join(o.from, released), key)
	switch {
	case err != nil:
		return fmt.Errorf("verifying the bundle: %w", err)
	case fingerprint == "":
		_, _ = fmt.Fprintln(stderr, "the bundle is complete; no one has signed it")
	case o.key == "":
		_, _ = fmt.Fprintf(stderr, "the bundle is complete, and signed with the key in it: sha256:%s. Compare this with what the project publishes, or use --key\n", fingerprint)
	default:
		_, _ = fmt.Fprintln(stderr, "the bundle is complete, and signed with the key of --key")
	}
	return nil
}
