//go:build cgo && containers_image_openpgp && exclude_graphdriver_btrfs

package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.podman.io/buildah/define"
	"go.podman.io/buildah/imagebuildah"
	networks "go.podman.io/common/libnetwork/types"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/classify"
	"github.com/layerwright/layerwright/builder/engine/position"
	"github.com/layerwright/layerwright/builder/engine/report"
)

// trustInRun is where RUN lines find the trust bundle, in the files that TrustDir has. It is beside
// what the image trusts, not in its place: a file that is mounted over the image's bundle could not
// be replaced by an update of the package that owns it.
const trustInRun = "/etc/layerwright/trust"

// inputPlaces are where RUN lines find an input.
var inputPlaces = map[string]string{
	backend.InputEntitlement: "/etc/pki/entitlement",
	backend.InputYumRepos:    "/etc/yum.repos.d",
	backend.InputRPMKeys:     "/etc/pki/rpm-gpg",
}

// build runs the Containerfile on what is in the store.
func (r *run) build(ctx context.Context) error {
	position, err := position.New(r.instructions.Containerfile, r.instructions.Stage, r.instructions.Lines)
	if err != nil {
		return report.NewAdmin(mcfgv1.ReasonInvalidContainerfile, err)
	}
	system, err := r.newSystem()
	if err != nil {
		return err
	}
	defer system.close()
	store, err := r.openStore()
	if err != nil {
		return err
	}
	defer closeStore(store)

	lines := r.output.Lines()
	defer func() { _ = lines.Close() }()
	b := &building{run: r, position: position, tail: &report.Tail{}, lines: lines, oom: killsByMemory(), space: &space{dir: r.Paths.Work}}
	options, err := b.options(system)
	if err != nil {
		return err
	}
	file, err := system.hold("Containerfile", []byte(r.instructions.Containerfile))
	if err != nil {
		return err
	}
	id, _, err := imagebuildah.BuildDockerfiles(ctx, store, options, file)
	if err != nil {
		return b.failure(err)
	}
	_, total := position.Progress()
	r.output.Progress(total, total, "built")
	return r.measure(store, id)
}

// building is the part of a build that listens to Buildah.
type building struct {
	run      *run
	position *position.Tracker
	tail     *report.Tail
	lines    io.Writer
	oom      int64
	space    *space
}

// options are what Buildah is told. What is not said here is its default without any configuration
// of the machine.
func (b *building) options(system *system) (define.BuildOptions, error) {
	r := b.run
	volumes, err := r.volumes()
	if err != nil {
		return define.BuildOptions{}, err
	}
	policy, err := system.hold("policy.json", []byte(acceptAnything))
	if err != nil {
		return define.BuildOptions{}, err
	}
	anonymous, err := system.hold("credentials", []byte("{}"))
	if err != nil {
		return define.BuildOptions{}, err
	}
	system.AuthFilePath, system.SignaturePolicyPath = anonymous, policy
	created, jobs := time.Unix(r.instructions.Created, 0).UTC(), 1
	contextDir := r.Paths.Context
	if !exists(contextDir) {
		contextDir = filepath.Join(r.Paths.Temporary(), "context")
		if err := os.MkdirAll(contextDir, 0o700); err != nil {
			return define.BuildOptions{}, fmt.Errorf("making an empty context: %w", err)
		}
	}
	output := io.MultiWriter(b.lines, b.tail, b.space)
	r.note("isolation chroot")
	return define.BuildOptions{
		ContextDirectory: contextDir,
		PullPolicy:       define.PullNever,
		Isolation:        define.IsolationChroot,
		Output:           resultName(r.instructions),
		OutputFormat:     define.OCIv1ImageManifest,
		Target:           r.instructions.Stage,
		Log:              b.step,
		In:               strings.NewReader(""),
		Out:              output,
		Err:              output,
		ReportWriter:     io.Discard,
		Architecture:     system.ArchitectureChoice,
		OS:               "linux",
		SystemContext:    &system.SystemContext,
		NamespaceOptions: []define.NamespaceOption{{Name: "network", Host: true}},
		ConfigureNetwork: define.NetworkDefault,
		NetworkInterface: noNetworks{},
		Layers:           true,
		// Containers of a failed stage are no use to anybody: there is no shell to look at them
		// with.
		RemoveIntermediateCtrs:  true,
		ForceRmIntermediateCtrs: true,
		SourceDateEpoch:         &created,
		RewriteTimestamp:        true,
		CreatedAnnotation:       types.OptionalBoolFalse,
		SignaturePolicyPath:     policy,
		Jobs:                    &jobs,
		CommonBuildOpts: &define.CommonBuildOptions{
			HTTPProxy:     true,
			IdentityLabel: types.OptionalBoolFalse,
			NoHostname:    true,
			Ulimit:        ulimits(),
			Volumes:       volumes,
			ShmSize:       "64m",
		},
	}, nil
}

// noNetworks is what Buildah would make networks with. RUN lines are on the network that the
// container has, so that nothing of it is ever called; without it Buildah looks for the programs of
// a network stack before it begins.
type noNetworks struct{ networks.ContainerNetwork }

// volumes are what RUN lines see and no layer keeps. They may write there, into an overlay that is
// thrown away: the folders are those that package managers write to.
func (r *run) volumes() ([]string, error) {
	var volumes []string
	entries, err := os.ReadDir(r.Paths.Inputs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the inputs: %w", err)
	}
	for _, entry := range entries {
		place, known := inputPlaces[entry.Name()]
		if !known {
			return nil, report.NewAdmin(mcfgv1.ReasonInvalid, fmt.Errorf("reading the inputs: nothing is known of %q", entry.Name()))
		}
		volumes = append(volumes, filepath.Join(r.Paths.Inputs, entry.Name())+":"+place+":O")
	}
	if files, err := certificates(r.Paths.Trust); err != nil {
		return nil, err
	} else if len(files) > 0 {
		volumes = append(volumes, r.Paths.Trust+":"+trustInRun+":ro")
	}
	return volumes, nil
}

// ulimits are the process's own. Buildah would ask for more than a container without
// CAP_SYS_RESOURCE may have, and fail every RUN line.
func ulimits() []string {
	var limits []string
	for name, resource := range map[string]int{"nofile": syscall.RLIMIT_NOFILE, "nproc": 6} { // 6 is RLIMIT_NPROC, which package syscall lacks
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(resource, &limit); err == nil {
			limits = append(limits, fmt.Sprintf("%s=%d:%d", name, int64(min(limit.Cur, limit.Max)), int64(limit.Max))) //nolint:gosec // -1 is how "unlimited" is written
		}
	}
	return limits
}

// step hears of each instruction before it is carried out.
func (b *building) step(format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if !b.position.Reached(message, b.tail.Lines()) {
		return
	}
	b.tail.Reset()
	done, total := b.position.Progress()
	place := b.position.Place(b.position.At.Current)
	_, _ = fmt.Fprintf(b.lines, "[%d/%d] %s\n", done, total, place)
	b.run.output.Progress(done, total, place)
}

// failure says what ended the build, in the administrator's lines.
func (b *building) failure(err error) error {
	at, lines := b.position.Failed(err, b.tail.Lines())
	if at == nil {
		return report.NewAdmin(mcfgv1.ReasonInvalidContainerfile, fmt.Errorf("reading the Containerfile: %w", err))
	}
	place, output := b.position.Place(at), withoutBuildah(lines)
	var exit *exec.ExitError
	isRun := strings.EqualFold(position.FirstWord(at.Text), "RUN") && errors.As(err, &exit)
	message := fmt.Errorf("%s: %w", place, cause(err))
	if isRun {
		message = fmt.Errorf("%s: %w", place, exit)
	}
	failure := report.NewAdmin(mcfgv1.ReasonBuildFailed, message)
	var download *url.Error
	switch {
	case killsByMemory() > b.oom:
		failure = report.NewInfrastructure(fmt.Errorf("%w: the build ran out of memory: %s", message, backend.MoreMemory))
	case isRun && isKilled(exit, lines):
		failure = report.NewInfrastructure(fmt.Errorf("%w: it was killed, most likely because there was no memory left: %s", message, backend.MoreMemory))
	case classify.IsDiskFull(err), isRun && (b.space.isFull.Load() || strings.Contains(strings.Join(output, "\n"), "No space left on device")):
		failure = report.NewInfrastructure(fmt.Errorf("%w: the volume of the build is full: %s", message, backend.MoreDisk))
	case isRun && slices.ContainsFunc(output, isBuildahs):
		failure = report.NewInfrastructure(fmt.Errorf("%w: the container of the RUN line could not be made", message))
	case strings.Contains(err.Error(), "Unknown instruction"):
		failure = report.NewAdmin(mcfgv1.ReasonInvalidContainerfile, fmt.Errorf("%s: unknown instruction", place))
	case errors.Is(err, storage.ErrImageUnknown):
		failure = report.NewAdmin(mcfgv1.ReasonImageNotFound, message)
	case errors.As(err, &download), !strings.HasPrefix(err.Error(), position.AtStep): // what is added from elsewhere, and what Buildah does by itself
		failure = report.NewInfrastructure(message)
	}
	failure.Output = output
	return failure
}

// Where Buildah has looked for what an instruction names: containers, and folders of the store,
// which are others in every build.
var (
	searched = regexp.MustCompile(`checking on sources under "[^"]*": (copier: stat: )?`)
	mounted  = regexp.MustCompile(`^resolving mountpoints for container "[^"]*": sanitizing bind subdirectory "[^"]*": opening [a-z ]*("[^"]*") under "[^"]*": ([^:]*).*$`)
)

// cause drops what Buildah puts in front: it names the instruction, which is known better already,
// and folders that no one can look into.
func cause(err error) error {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		text := inner.Error()
		if strings.HasPrefix(text, position.AtStep) {
			continue
		}
		if short := mounted.ReplaceAllString(searched.ReplaceAllString(text, ""), "$1: $2"); short != text {
			return errors.New(short)
		}
		return inner
	}
	return err
}

// subprocess is what Buildah's own processes add to the output of a RUN line, once each.
var subprocess = regexp.MustCompile(`subprocess exited (with status \d+|on [a-z ]+)$`)

// withoutBuildah takes that away from the end of the output. A line of the RUN line's that has no
// end is before it on the same line.
func withoutBuildah(lines []string) []string {
	lines = slices.Clone(lines)
	for range 2 {
		if len(lines) == 0 {
			return lines
		}
		last := &lines[len(lines)-1]
		own := subprocess.ReplaceAllString(*last, "")
		if own == *last {
			return lines
		}
		if *last = own; own == "" {
			lines = lines[:len(lines)-1]
		}
	}
	return lines
}

// isBuildahs reports whether a line says that Buildah failed before the RUN line began.
func isBuildahs(line string) bool { return strings.HasPrefix(line, "error running subprocess: ") }

// isKilled reports whether the RUN line, or what its shell waited for, ended by SIGKILL.
func isKilled(exit *exec.ExitError, lines []string) bool {
	const byShell = 128 + int(syscall.SIGKILL)
	if exit.ExitCode() == byShell {
		return true
	}
	return slices.ContainsFunc(lines, func(line string) bool { return strings.HasSuffix(line, "subprocess exited on killed") })
}

// measure reports what the build added to its base.
func (r *run) measure(store storage.Store, id string) error {
	image, err := store.Image(id)
	if err != nil {
		return fmt.Errorf("reading the image that was built: %w", err)
	}
	layers, err := chain(store, image)
	if err != nil {
		return err
	}
	base, err := r.pulled(store)
	if err != nil {
		return err
	}
	for _, layer := range layers {
		if base[layer.ID] != "" {
			break
		}
		r.report.Layers++
		r.report.Bytes += layer.UncompressedSize
	}
	return nil
}

// pulled are the layers of the images that Fetch brought, with the image that each is from.
func (r *run) pulled(store storage.Store) (map[string]string, error) {
	layers := map[string]string{}
	for _, pinned := range r.instructions.Images {
		named, err := reference.ParseNormalizedNamed(pinned.Image)
		if pinned.Image == "" {
			named, err = reference.ParseNormalizedNamed("localhost/" + pinned.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the name of image %q: %w", pinned.Name, err)
		}
		image, err := find(store, withoutTag(reference.TagNameOnly(named)))
		if err != nil {
			return nil, err
		}
		if image == nil {
			continue
		}
		all, err := chain(store, image)
		if err != nil {
			return nil, err
		}
		for _, layer := range all {
			layers[layer.ID] = image.ID
		}
	}
	return layers, nil
}
