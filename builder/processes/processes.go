package processes

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

// Options are what a Builder works with.
type Options struct {
	// Program is layerwright-builder.
	Program string
	// Keychain has the credentials for registries.
	Keychain authn.Keychain
	// TrustBundle are certificate authorities of registries, as PEM; empty for those of the system.
	TrustBundle []byte
	// Out gets what the steps write for people.
	Out   io.Writer
	Clock clock.PassiveClock
}

// Builder builds content.
type Builder struct{ options Options }

// New returns a Builder.
func New(options Options) *Builder { return &Builder{options} }

// grace is how long a step may take to end when it is told to.
const grace = 30 * time.Second

// Build builds what a spec says, one architecture after the other, and pushes it.
func (b *Builder) Build(ctx context.Context, spec *backend.Spec) (*backend.State, error) {
	var ones []pods.ArchitectureState
	var all []mcfgv1.Architecture
	for i := range spec.Architectures {
		a := &spec.Architectures[i]
		if a.Architecture.OCI() != runtime.GOARCH {
			return nil, fault.NewTerminal(mcfgv1.ReasonBuilderNotAvailable, fmt.Errorf(
				"the content for %s can't be built on this machine, which is %s: name the architectures that it is to be for with --architecture, or build on a cluster",
				a.Architecture.OCI(), runtime.GOARCH))
		}
		all = append(all, a.Architecture)
	}
	for i := range spec.Architectures {
		one, err := b.build(ctx, spec, &spec.Architectures[i])
		if err != nil {
			return nil, err
		}
		if ones = append(ones, *one); one.Failure != nil {
			break
		}
	}
	state := pods.Join(ones, all)
	return &state, nil
}

// build runs the steps of one architecture, in a folder that goes with them.
func (b *Builder) build(ctx context.Context, spec *backend.Spec, a *backend.ArchitectureSpec) (_ *pods.ArchitectureState, err error) {
	dir, err := newFolder(os.Getenv("TMPDIR"))
	if err != nil {
		return nil, fmt.Errorf("making a folder to build in: %w", err)
	}
	p := &pod{Options: &b.options, dir: dir}
	defer func() { err = errors.Join(err, p.remove(context.WithoutCancel(ctx))) }()
	if err := p.furnish(spec, a); err != nil {
		return nil, fmt.Errorf("preparing the build in %q: %w", dir, err)
	}
	one := &pods.ArchitectureState{Architecture: a.Architecture, Started: b.options.Clock.Now(), Phase: backend.Succeeded}
	for _, step := range backend.Steps() {
		report, err := p.run(ctx, step, a)
		if err != nil {
			return nil, fmt.Errorf("running step %s: %w", step, err)
		}
		one.Reports = append(one.Reports, *report)
		one.Image = cmp.Or(report.Image, one.Image)
		if f := report.Failure; f != nil {
			one.Phase, one.Failure = backend.Failed, backend.NewFailure(f.Class, f.Reason, strings.Join(append([]string{f.Message}, f.Output...), "\n"))
			break
		}
	}
	one.Ended = b.options.Clock.Now()
	return one, nil
}

// ownTemporary is where steps have a folder of their own, which hides that of the machine.
const ownTemporary = "/var/tmp"

// newFolder makes a folder to build in. The store is large, and folders for temporary files are in
// memory on many machines, so it is among caches where no one names one.
func newFolder(in string) (string, error) {
	if in == ownTemporary || strings.HasPrefix(in, ownTemporary+"/") {
		return "", fmt.Errorf("TMPDIR is below %s, which the steps of a build have of their own; name another folder", ownTemporary)
	}
	if in == "" {
		var err error
		if in, err = cacheDir(); err != nil {
			return "", err
		}
		if err := os.MkdirAll(in, 0o755); err != nil { //nolint:gosec // users of the namespace have to reach what is in it
			return "", err
		}
	}
	return os.MkdirTemp(in, "build-")
}

// pod is a folder with what the steps of a build have.
type pod struct {
	*Options

	dir string
	// cage is what keeps the steps from the machine.
	cage cage
}

// Files and folders of a pod.
const (
	instructionsFile = "instructions.json"
	contextDir       = "context"
	credentialsDir   = "credentials"
	trustDir         = "trust"
	registriesFile   = "registries.conf"
	policyFile       = "policy.json"
	nowhere          = "nowhere"
)

func (p *pod) path(name ...string) string { return filepath.Join(append([]string{p.dir}, name...)...) }

// furnish writes the files that a pod would have mounted.
func (p *pod) furnish(spec *backend.Spec, a *backend.ArchitectureSpec) (err error) {
	for file := range a.Context {
		// No API server has seen these ConfigMaps: a key with ".." would name a file of the user's.
		if problems := validation.IsConfigMapKey(file); len(problems) > 0 {
			return fault.NewTerminal(mcfgv1.ReasonInvalidContainerfile, fmt.Errorf("key %q of the Containerfile's ConfigMap: %s", file, strings.Join(problems, "; ")))
		}
	}
	if p.cage, err = newCage(p.dir, p.Program); err != nil {
		return err
	}
	text, err := json.Marshal(&a.Instructions)
	if err != nil {
		return err
	}
	files := map[string][]byte{instructionsFile: text}
	for file, content := range a.Context {
		files[filepath.Join(contextDir, file)] = content
	}
	for file, content := range map[string][]byte{
		registriesFile: spec.Registries, policyFile: spec.Policy, filepath.Join(trustDir, "registries.pem"): slices.Concat(spec.TrustBundle, p.TrustBundle),
	} {
		if len(content) > 0 {
			files[file] = content
		}
	}
	for file, content := range files {
		if err := p.write(file, content); err != nil {
			return err
		}
	}
	return nil
}

// write writes a file that the steps may read and no one else.
func (p *pod) write(file string, content []byte) error {
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if err := os.MkdirAll(p.path(dir), 0o700); err != nil {
			return err
		}
		if err := p.cage.own(p.path(dir)); err != nil {
			return err
		}
		if dir == "." {
			break
		}
	}
	if err := os.WriteFile(p.path(file), content, 0o600); err != nil {
		return err
	}
	return p.cage.own(p.path(file))
}

// run runs a step, and gives what it has left. The credentials are there for those steps alone that
// pull and push.
func (p *pod) run(ctx context.Context, step backend.Step, a *backend.ArchitectureSpec) (*backend.Report, error) {
	credentials := nowhere
	if step == backend.Fetch || step == backend.Push {
		credentials = credentialsDir
		if err := p.logIn(&a.Instructions); err != nil {
			return nil, err
		}
		defer os.RemoveAll(p.path(credentialsDir)) //nolint:errcheck // the folder goes in any case
	}
	report := string(step) + "-report.json"
	cmd := p.cage.command(
		ctx, string(step), "--instructions", p.path(instructionsFile), "--context", p.path(contextDir), "--inputs", p.path(nowhere),
		"--trust", p.path(trustDir), "--registries", p.path(registriesFile), "--policy", p.path(policyFile), "--work", p.path("work"),
		"--fetched", p.path("fetched"), "--layout", p.path("layout"), "--report", p.path(report),
		"--credentials", p.path(credentials), "--base-credentials", p.path(credentials),
	)
	cmd.Env = append(p.proxies(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME="+p.dir, "TMPDIR="+p.dir, backend.IsolationVariable+"="+string(backend.IsolationUserNamespace))
	cmd.WaitDelay = grace
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		p.show(reader)
	}()
	runtime.LockOSThread() // what a process dies with is the thread that began it
	defer runtime.UnlockOSThread()
	failed := cmd.Run()
	_ = writer.Close() // never fails
	<-shown
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	text, err := os.ReadFile(p.path(report))
	if err == nil && len(text) > 0 {
		return backend.ReadReport(string(text))
	}
	return nil, p.cage.explain(cmp.Or(failed, errors.New("it has left no report")))
}

// longestLine is how much of a line without an end is waited for.
const longestLine = 4 << 20

// show shows what a step writes for people.
func (p *pod) show(from io.Reader) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), strings.TrimSpace(backend.ProgressPrefix)) {
			_, _ = fmt.Fprintln(p.Out, lines.Text())
		}
	}
	_, _ = io.Copy(io.Discard, from) // a line that is too long ends the scanner
}

// proxies are the variables of this process that say how registries are reached.
func (*pod) proxies() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		key, _, _ := strings.Cut(variable, "=")
		return !slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}, strings.ToUpper(key))
	})
}

// logIn writes the credentials for the registries of a build, as a secret has them.
func (p *pod) logIn(in *backend.Instructions) error {
	logins := map[string]map[string]string{}
	images := []string{in.Target}
	for _, image := range in.Images {
		images = append(images, cmp.Or(image.Image, image.Name))
	}
	for _, image := range images {
		ref, err := name.ParseReference(image)
		if err != nil {
			return fmt.Errorf("reading the name of image %q: %w", image, err)
		}
		found, err := p.Keychain.Resolve(ref.Context())
		if err != nil {
			return fmt.Errorf("looking for credentials for %q: %w", ref.Context(), err)
		}
		config, err := found.Authorization()
		if err != nil {
			return fmt.Errorf("reading the credentials for %q: %w", ref.Context(), err)
		}
		if found == authn.Anonymous || *config == (authn.AuthConfig{}) {
			continue
		}
		login := map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(config.Username + ":" + config.Password))}
		if config.IdentityToken != "" {
			login["identitytoken"] = config.IdentityToken
		}
		logins[ref.Context().Name()] = login
	}
	if len(logins) == 0 {
		return nil
	}
	text, err := json.Marshal(map[string]any{"auths": logins})
	if err != nil {
		return err
	}
	return p.write(filepath.Join(credentialsDir, corev1.DockerConfigJsonKey), text)
}

// remove removes the folder.
func (p *pod) remove(ctx context.Context) error {
	if err := p.cage.remove(ctx, p.dir); err != nil {
		return fmt.Errorf("removing the folder %q of the build: %w", p.dir, err)
	}
	return nil
}
