package story

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	own "github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/test/fixtures/layer"
	"github.com/layerwright/layerwright/trust/sign"
)

// Options are what a story is told with.
type Options struct {
	// Folder is an empty one for its files.
	Folder string
	Out    io.Writer
	// Layerwright runs the program, which writes to out.
	Layerwright func(ctx context.Context, out io.Writer, args ...string) error
}

// teller tells the story.
type teller struct {
	*Options

	host string
}

// Names of the story.
const (
	configFile = "motd.yaml"
	keyFile    = "cosign.key"
	publicFile = "cosign.pub"
)

// machineConfig is what the administrator writes.
const machineConfig = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-motd
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  config:
    ignition:
      version: 3.5.0
    storage:
      files:
        - path: /etc/motd
          contents:
            source: data:,%s%%0A
`

// Tell tells the story, and leaves nothing but the files.
func Tell(ctx context.Context, o *Options) error {
	host, stop, err := serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	t := &teller{o, host}
	for _, act := range []func(context.Context) error{t.prepare, t.build, t.again, t.change, t.show} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return t.say(`
That was without a cluster. With one, the controller does the same whenever a MachineConfig changes, and the nodes follow:

  make demo    a real Kubernetes on this machine (Linux): a changed file becomes a signed image, with root three nodes boot it one after
               the other, and a copy that was tampered with is refused; the first time it compiles Kubernetes, for 10 to 30 minutes

Your own files and base image: docs/build.md. What would be in the image, without making it: docs/render.md.
`)
}

// serve runs a registry in memory, for this machine alone.
func serve(ctx context.Context) (host string, stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("starting the registry: %w", err)
	}
	server := &http.Server{
		Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = server.Serve(listener) }() // it says that it was closed
	return listener.Addr().String(), func() { _ = server.Close() }, nil
}

func (t *teller) say(format string, args ...any) error {
	_, err := fmt.Fprintf(t.Out, format, args...)
	return err
}

func (t *teller) path(file string) string { return filepath.Join(t.Folder, file) }

func (t *teller) base() string       { return t.host + "/os/tiny:1" }
func (t *teller) repository() string { return t.host + "/fleet/os" }

// run prints a command and runs it.
func (t *teller) run(ctx context.Context, args ...string) error {
	shown := "\n$ layerwright"
	for _, arg := range args {
		if strings.HasPrefix(arg, "--") {
			shown += " \\\n   "
		}
		shown += " " + arg
	}
	if err := t.say("%s\n", shown); err != nil {
		return err
	}
	return t.Layerwright(ctx, t.Out, args...)
}

func (t *teller) buildImage(ctx context.Context) error {
	return t.run(ctx, "build", "-f", t.path(configFile), "--base", t.base(), "--push", t.repository(), "--sign-key", t.path(keyFile))
}

// prepare makes what an administrator has before: a base image, a file and a key.
func (t *teller) prepare(ctx context.Context) error {
	if err := t.pushBase(ctx); err != nil {
		return fmt.Errorf("making the base image: %w", err)
	}
	private, public, err := sign.GenerateKey(nil)
	if err != nil {
		return err
	}
	for file, content := range map[string][]byte{configFile: fmt.Appendf(nil, machineConfig, "hello"), keyFile: private, publicFile: public} {
		if err := os.WriteFile(t.path(file), content, 0o600); err != nil {
			return err
		}
	}
	return t.say(`A registry runs in memory, with a tiny OS image of a few files: %s
A key pair as "cosign generate-key-pair" makes it, without a password: %s, %s
A MachineConfig that wants one file, /etc/motd, on every worker: %s
`, t.base(), t.path(keyFile), t.path(publicFile), t.path(configFile))
}

func (t *teller) build(ctx context.Context) error {
	if err := t.say("\nThe image of the pool worker, with provenance, SBOM and signature. No container runs; the base image is read once, for an index:\n"); err != nil {
		return err
	}
	if err := t.buildImage(ctx); err != nil {
		return err
	}
	image, err := t.verify(ctx)
	if err != nil {
		return err
	}
	return t.say(`
Verified with the public key alone, as nodes do it. cosign does the same:

$ cosign verify --insecure-ignore-tlog=true --key %s %s
`, t.path(publicFile), image)
}

// verify makes sure that the pool's image is signed with the key.
func (t *teller) verify(ctx context.Context) (string, error) {
	text, err := os.ReadFile(t.path(publicFile))
	if err != nil {
		return "", err
	}
	keys, err := sign.ParsePublicKeys(text)
	if err != nil {
		return "", err
	}
	client := own.New(own.Options{})
	image, err := client.Resolve(ctx, t.repository()+":worker")
	if err == nil {
		_, err = sign.Policy{{Repository: t.repository(), Keys: keys}}.Verify(ctx, client, image.Image)
	}
	return image.Image, err
}

func (t *teller) again(ctx context.Context) error {
	if err := t.say("\nThe same once more: nothing has changed, so nothing is made.\n"); err != nil {
		return err
	}
	return t.buildImage(ctx)
}

func (t *teller) change(ctx context.Context) error {
	if err := os.WriteFile(t.path(configFile), fmt.Appendf(nil, machineConfig, "good%20morning"), 0o600); err != nil {
		return err
	}
	if err := t.say("\nAnother text for /etc/motd: that is one small layer, and all that a node pulls.\n\n$ sed -i s/hello/good%%20morning/ %s\n", t.path(configFile)); err != nil {
		return err
	}
	if err := t.buildImage(ctx); err != nil {
		return err
	}
	_, err := t.verify(ctx)
	return err
}

// show lists what is in the registry now.
func (t *teller) show(ctx context.Context) error {
	repository, err := name.NewRepository(t.repository())
	if err != nil {
		return err
	}
	tags, err := remote.List(repository, remote.WithContext(ctx))
	if err != nil {
		return err
	}
	slices.Sort(tags)
	if err := t.say("\nWhat the registry has now. The layers of the OS image are the same everywhere, and are there once:\n\n"); err != nil {
		return err
	}
	for _, tag := range tags {
		found, err := remote.Image(repository.Tag(tag), remote.WithContext(ctx))
		if err != nil {
			continue // the list of what refers to an image is none
		}
		manifest, err := found.Manifest()
		if err != nil {
			return err
		}
		if err := t.say("  %s%s\n", tag, meaning(tag)); err != nil {
			return err
		}
		if strings.HasPrefix(tag, "sha256-") {
			continue
		}
		for _, l := range manifest.Layers {
			if err := t.say("      layer %s  %6d bytes\n", l.Digest.Hex[:12], l.Size); err != nil {
				return err
			}
		}
	}
	return nil
}

// meaning says what a tag is for.
func meaning(tag string) string {
	switch {
	case strings.HasSuffix(tag, ".sig"):
		return "  (signature)"
	case strings.HasSuffix(tag, ".att"):
		return "  (provenance and SBOM)"
	case tag == mcfgv1.PoolWorker:
		return "  (moves to the newest image of the pool)"
	}
	return ""
}

// pushBase pushes an OS image that has what images are made from: a file system, and who it is. It
// has no kernel and no program.
func (t *teller) pushBase(ctx context.Context) error {
	system, identity := layer.Tree{}, layer.Tree{}
	system.Dirs("boot", "dev", "etc", "proc", "run", "sys", "tmp", "usr/bin", "usr/lib/systemd/system", "usr/share", "var/home", "var/usrlocal/bin")
	for link, target := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "home": "var/home", "usr/local": "../var/usrlocal"} {
		system.Symlink(link, target)
	}
	identity.File("usr/lib/os-release", layer.ModeFile, []byte("ID=tiny\nNAME=\"Tiny OS\"\nVERSION_ID=1\n"))
	identity.Symlink("etc/os-release", "../usr/lib/os-release")
	specs := []layer.Spec{{Name: "system", Content: system}, {Name: "identity", Content: identity}}
	layers := make([]*layer.Layer, len(specs))
	for i, spec := range specs {
		var err error
		if layers[i], err = layer.Memory(ctx, spec); err != nil {
			return err
		}
	}
	image, err := layer.Assemble(layer.Config{Arch: "amd64", Labels: map[string]string{mcfgv1.ImageLabelBootc: "1"}}, specs, layers)
	if err != nil {
		return err
	}
	ref, err := name.ParseReference(t.base())
	if err != nil {
		return err
	}
	return remote.Write(ref, image, remote.WithContext(ctx))
}
