package hostcheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/host"
)

const (
	signedOnly = `{"default":[{"type":"reject"}],"transports":{"docker":{"quay.io/os":[{"type":"sigstoreSigned"}]}}}`
	lockFile   = "run/ostree/staged-deployment-locked"
	secretWord = "password=hunter2"
)

// machine is a host in memory, whose files are in a folder.
type machine struct {
	t      *testing.T
	root   string
	status host.Status
	line   []string
	staged []string // the line of what is staged
	// stages are the images that were staged, and trusts what they were trusted for.
	stages []string
	trusts []host.Trust
	// cant is why a call fails, by its name; keeps has Unstage do nothing, and hasNoLock is of an
	// ostree without its command.
	cant             map[string]error
	keeps, hasNoLock bool
	whyNotBooted     string
	detect           error
	versions         map[string]string
	// stop ends the check when something is staged.
	stop func()
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	image := nodestest.Pinned("1")
	name, digest, _ := strings.Cut(image, "@")
	m := &machine{
		t: t, root: t.TempDir(), line: []string{"rw", secretWord}, cant: map[string]error{},
		status:   host.Status{Booted: &host.Deployment{Image: name + ":latest", Digest: digest}},
		versions: map[string]string{"bootc": "bootc 1.16.9\n", "rpm-ostree": "rpm-ostree:\n Version: '2026.2'\n", "ostree": "libostree:\n Version: '2026.4'\n", "systemctl": "systemd 257 (257.9-1)\n"},
	}
	m.put("usr/lib/os-release", "NAME=Test\nPRETTY_NAME=\"Test Linux 9\"\n")
	m.put("etc/containers/policy.json", signedOnly)
	m.put("run/ostree-booted", "")
	for _, dir := range []string{"sysroot", "boot"} {
		require.NoError(t, os.Mkdir(filepath.Join(m.root, dir), 0o755))
	}
	return m
}

func (m *machine) put(name, content string) {
	m.t.Helper()
	at := filepath.Join(m.root, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(m.t, os.WriteFile(at, []byte(content), 0o644))
}

func (m *machine) has(name string) bool {
	_, err := os.Stat(filepath.Join(m.root, name))
	return err == nil
}

func (m *machine) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	version, has := m.versions[name]
	if !has {
		return nil, host.ErrNoProgram
	}
	require.Equal(m.t, []string{"--version"}, args)
	return []byte(version), nil
}

func (m *machine) Detect(_ context.Context, mode host.Mode) (host.Host, error) {
	if _, has := m.versions["bootc"]; mode == host.ModeBootc && !has {
		return nil, errors.New("no bootc")
	}
	return m, m.detect
}

func (m *machine) Status(context.Context) (host.Status, error) {
	s := m.status
	if s.Staged != nil {
		copied := *s.Staged
		s.Staged = &copied
	}
	return s, m.cant["status"]
}

func (m *machine) stageAs(image string, line []string) error {
	require.True(m.t, m.has(lockFile), "a reboot would boot it")
	m.status.Staged, m.staged = &host.Deployment{Image: image, Digest: m.status.Booted.Digest, SoftReboots: true}, line
	if m.stop != nil {
		m.stop()
	}
	return nil
}

func (m *machine) Stage(_ context.Context, image mcfgv1.ImageDigestFormat, trust host.Trust) error {
	if err := m.cant["stage"]; err != nil {
		return err
	}
	m.stages, m.trusts = append(m.stages, string(image)), append(m.trusts, trust)
	return m.stageAs(string(image), m.line)
}

func (m *machine) Unstage(ctx context.Context, image mcfgv1.ImageDigestFormat) error {
	if err := errors.Join(ctx.Err(), m.cant["unstage"]); err != nil {
		return err
	}
	if m.status.Staged.IsOf(image) && !m.keeps {
		m.status.Staged, m.staged = nil, nil
	}
	return nil
}

func (m *machine) Rollback(context.Context) error { return errors.New("never asked for") }

func (m *machine) KernelArguments(context.Context) ([]string, error) {
	if m.staged != nil {
		return slices.Clone(m.staged), m.cant["read"]
	}
	return slices.Clone(m.line), m.cant["read"]
}

func (m *machine) CheckKernelArguments(context.Context, host.ArgumentChange) error {
	return m.cant["check"]
}

func (m *machine) SetKernelArguments(_ context.Context, change host.ArgumentChange) error {
	if err := m.cant["set"]; err != nil {
		return err
	}
	return m.stageAs(m.status.Booted.Image, slices.Clone(change.To))
}

func (m *machine) Lock(context.Context) error {
	m.status.Staged.Locked = !m.hasNoLock
	return m.cant["lock"]
}

func (m *machine) Unlock(context.Context) error {
	m.status.Staged.Locked = false
	if m.hasNoLock {
		return nil
	}
	return os.Remove(filepath.Join(m.root, lockFile))
}

func (m *machine) WhyNotBooted(context.Context) string { return m.whyNotBooted }

func (m *machine) Reboot(context.Context, string) error { return errors.New("never asked for") }

func (m *machine) SoftReboot(context.Context) error { return errors.New("never asked for") }

func (m *machine) check(ctx context.Context, disruptive bool) (*Report, error) {
	m.t.Helper()
	return Run(ctx, Options{Root: m.root, Run: m, Detect: m.Detect, Version: "v1", Disruptive: disruptive})
}

// answers are what a report says, by what was asked.
func answers(r *Report) map[string]string {
	out := map[string]string{}
	for _, c := range r.Checks {
		out[c.What] = string(c.Result) + ": " + c.Answer
	}
	return out
}

var errRefused = errors.New("refused")

// TestCheck has for each thing a host that answers otherwise than a good one.
func TestCheck(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		host       func(*machine)
		what, says string
		toMend     int
	}{
		"a good host":                 {func(*machine) {}, "deployments", "ok: by bootc; quay.io/os/image@sha256:", 0},
		"a version":                   {func(*machine) {}, "rpm-ostree", "ok: 2026.2", 0},
		"a program is missing":        {func(*machine) {}, "skopeo", "ok: not there", 0},
		"a program without a version": {func(m *machine) { m.versions["skopeo"] = "\n" }, "skopeo", "limited: says no version", 0},
		"no systemd":                  {func(m *machine) { delete(m.versions, "systemctl") }, "systemctl", "mend: not there", 1},
		"rpm-ostree alone":            {func(m *machine) { delete(m.versions, "bootc") }, "deployments", "ok: by rpm-ostree", 0},
		"nothing manages it": {
			func(m *machine) {
				m.detect = fault.NewTerminal(mcfgv1.ReasonUnsuitableHost, errors.New("the host has neither"))
			}, "deployments", "mend: the host has neither", 1,
		},
		"packages over its image": {func(m *machine) { m.status.Booted.HasLocalPackages = true }, "deployments", "mend: it has packages that rpm-ostree installed", 1},
		"no image":                {func(m *machine) { m.status.Booted = &host.Deployment{} }, "deployments", "mend: by bootc, of no image", 1},
		"/usr is writable":        {func(m *machine) { m.status.UsrIsUnlocked = true }, "/usr", "limited: someone has made /usr writable", 0},
		"bootc's composefs store": {func(m *machine) { m.status.IsComposefs = true }, "composefs", "limited: bootc's composefs store", 0},
		"a policy that rejects":   {func(m *machine) { m.put("etc/containers/policy.json", `{"default":[{"type":"reject"}]}`) }, "signature policy", "limited: signed images wait", 0},
		"a policy that is broken": {func(m *machine) { m.put("etc/containers/policy.json", `{`) }, "signature policy", "mend: reading the host's policy", 1},
		"a certificate for root alone": {
			func(m *machine) {
				m.put("etc/containers/certs.d/a/ca.crt", "")
				require.NoError(m.t, os.Chmod(filepath.Join(m.root, "etc/containers/certs.d/a/ca.crt"), 0o600))
			}, "/etc/containers", "mend: images are pulled by a user without rights, who can't read it: chmod 0644 /etc/containers/certs.d/a/ca.crt", 1,
		},
		"a directory for root alone": {
			func(m *machine) {
				m.put("etc/containers/registries.d/a.yaml", "")
				require.NoError(m.t, os.Chmod(filepath.Join(m.root, "etc/containers/registries.d"), 0o700))
			}, "/etc/containers", "chmod 0755 /etc/containers/registries.d", 1,
		},
		"no kernel arguments": {
			func(m *machine) {
				m.cant["check"] = fault.NewTerminal(mcfgv1.ReasonKernelArgumentsUnsupported, errors.New("its bootc 1.4 can't"))
			}, "kernel arguments", "limited: its bootc 1.4 can't", 0,
		},
		"kernel arguments can't be read": {func(m *machine) { m.cant["read"] = errRefused }, "kernel arguments", "mend: refused", 1},
		"their number alone is said":     {func(*machine) {}, "kernel arguments", "ok: 2 of them, which can be changed", 0},
		"no ostree": {
			func(m *machine) { require.NoError(m.t, os.Remove(filepath.Join(m.root, "run/ostree-booted"))) }, "lock", "limited: none", 0,
		},
		"a shutdown that failed": {func(m *machine) { m.whyNotBooted = "ostree-finalize-staged.service: full" }, "last boot", "mend: what was staged did not boot: ostree-finalize-staged.service: full", 1},
		"soft reboot": {
			func(m *machine) { m.status.Rollback = &host.Deployment{SoftReboots: true} }, "soft reboot", "ok: the host says that it can", 0,
		},
		"no soft reboot":       {func(m *machine) { m.status.Rollback = &host.Deployment{} }, "soft reboot", "limited: ", 0},
		"no place for kernels": {func(m *machine) { require.NoError(m.t, os.Remove(filepath.Join(m.root, "boot"))) }, "space of /boot", "limited: ", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			tt.host(m)
			r, err := m.check(t.Context(), false)
			require.NoError(t, err)
			assert.Contains(t, answers(r)[tt.what], tt.says)
			assert.Equal(t, tt.toMend, r.ToMend(), "%v", r.Checks)
			assert.Equal(t, "Test Linux 9", r.System)
			assert.Nil(t, m.status.Staged)
			assert.False(t, m.has(lockFile))
		})
	}
}

func TestAHostThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.cant["status"] = errRefused
	_, err := m.check(t.Context(), false)
	require.ErrorIs(t, err, errRefused)
	m.root = filepath.Join(m.root, "none")
	_, err = m.check(t.Context(), false)
	require.ErrorContains(t, err, "looking for the host's root")
}

// TestDisruptive leaves nothing, whatever happens meanwhile.
func TestDisruptive(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		host   func(*machine)
		want   map[string]string
		toMend int
	}{
		"all of it": {func(*machine) {}, map[string]string{
			"staging": "ok: the image that runs was staged by its digest, with its signature verified", "kernel arguments there": "ok: what boots next has 3 of them",
			"kernel arguments back": "ok: what boots next has 2 of them", "lock and unlock": "ok: by ostree admin lock-finalization",
			"soft reboot": "ok: the host says that it can", "unstaging": "ok: what boots next is what boots without this check",
		}, 0},
		"a policy that wants no signature": {
			func(m *machine) {
				m.put("etc/containers/policy.json", `{"default":[{"type":"insecureAcceptAnything"}]}`)
			},
			map[string]string{"staging": "ok: the image that runs was staged by its digest, without a signature"},
			0,
		},
		"an image by its digest": {
			func(m *machine) { m.status.Booted.Image = nodestest.Pinned("1") },
			map[string]string{"staging": "not done: the host runs its image by digest", "lock and unlock": "ok: ", "unstaging": "ok: "},
			0,
		},
		"a registry that refuses": {
			func(m *machine) { m.cant["stage"] = errRefused },
			map[string]string{"staging": "mend: refused", "kernel arguments there": "ok: ", "unstaging": "ok: "},
			1,
		},
		"no kernel arguments": {
			func(m *machine) {
				m.cant["read"] = fault.NewTerminal(mcfgv1.ReasonKernelArgumentsUnsupported, errors.New("its bootc 1.4 can't"))
			},
			map[string]string{"staging": "ok: ", "kernel arguments there": "", "lock and unlock": "ok: ", "unstaging": "ok: "},
			0,
		},
		"kernel arguments that are refused": {
			func(m *machine) { m.cant["set"] = errRefused },
			map[string]string{"kernel arguments there": "mend: refused", "kernel arguments back": "mend: refused", "unstaging": "ok: "},
			2,
		},
		"neither an image nor kernel arguments": {
			func(m *machine) { m.cant["set"], m.cant["stage"] = errRefused, errRefused },
			map[string]string{"lock": "not done: nothing is staged", "unstaging": "ok: "},
			2,
		},
		"an old ostree": {
			func(m *machine) { m.hasNoLock = true }, map[string]string{"lock and unlock": "limited: by ostree's file alone", "unstaging": "ok: "}, 0,
		},
		"a lock that is refused": {func(m *machine) { m.cant["lock"] = errRefused }, map[string]string{"lock and unlock": "mend: refused", "unstaging": "ok: "}, 1},
		"something is staged": {
			func(m *machine) { m.status.Staged = &host.Deployment{Digest: "sha256:other"} }, map[string]string{"staging": "not done: something is staged", "unstaging": ""}, 0,
		},
		"a rollback is queued":          {func(m *machine) { m.status.RollbackQueued = true }, map[string]string{"staging": "not done: something is staged"}, 0},
		"a composefs store":             {func(m *machine) { m.status.IsComposefs = true }, map[string]string{"staging": "not done: a staged image can't be removed"}, 0},
		"a host that can't be updated":  {func(m *machine) { m.status.IsReadOnly = true }, map[string]string{"staging": "not done: the host can't stage an image"}, 1},
		"a host whose lock is not kept": {func(m *machine) { require.NoError(m.t, os.Remove(filepath.Join(m.root, "run/ostree-booted"))) }, map[string]string{"staging": "not done: ostree has no lock here"}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			tt.host(m)
			before, err := m.Status(t.Context())
			require.NoError(t, err)
			r, err := m.check(t.Context(), true)
			require.NoError(t, err)
			said := answers(r)
			for what, says := range tt.want {
				assert.Contains(t, said[what], says, what)
				assert.Equal(t, says == "", said[what] == "", what)
			}
			assert.Equal(t, tt.toMend, r.ToMend(), "%v", r.Checks)
			after, err := m.Status(t.Context())
			require.NoError(t, err)
			assert.Equal(t, before, after)
			assert.False(t, m.has(lockFile))
		})
	}
}

func TestTheLockOfOthersStays(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.put(lockFile, "")
	r, err := m.check(t.Context(), true)
	require.NoError(t, err)
	assert.Contains(t, answers(r)["staging"], "not done: something is staged")
	assert.True(t, m.has(lockFile))
}

func TestWhatCannotBeRemovedStaysLocked(t *testing.T) {
	t.Parallel()
	for name, can := range map[string]func(*machine){
		"it is refused":     func(m *machine) { m.cant["unstage"] = errRefused },
		"it has no success": func(m *machine) { m.keeps = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			can(m)
			r, err := m.check(t.Context(), true)
			require.NoError(t, err)
			assert.Contains(t, answers(r)["unstaging"], "remove what is staged with ostree admin undeploy 0")
			assert.Equal(t, 1, r.ToMend())
			assert.True(t, m.has(lockFile), "a reboot would boot it")
		})
	}
}

func TestACheckThatIsEndedLeavesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	ctx, stop := context.WithCancel(t.Context())
	m.stop = stop
	_, err := m.check(ctx, true)
	require.ErrorIs(t, err, context.Canceled)
	assert.Nil(t, m.status.Staged)
	assert.False(t, m.has(lockFile))
}

func TestWhatIsTrusted(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	_, err := m.check(t.Context(), true)
	require.NoError(t, err)
	m.put("etc/containers/policy.json", `{"default":[{"type":"insecureAcceptAnything"}]}`)
	_, err = m.check(t.Context(), true)
	require.NoError(t, err)
	assert.Equal(t, []host.Trust{host.TrustSignature, host.TrustDigest}, m.trusts)
	assert.Equal(t, []string{nodestest.Pinned("1"), nodestest.Pinned("1")}, m.stages)
}

// TestTheReportHasNoSecret looks for a kernel argument's value in all that is written.
func TestTheReportHasNoSecret(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	r, err := m.check(t.Context(), true)
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	content, err := json.Marshal(r)
	require.NoError(t, err)
	for _, written := range []string{text.String(), string(content)} {
		assert.Contains(t, written, "1.16.9")
		assert.NotContains(t, written, "hunter2")
		assert.NotContains(t, written, "password")
	}
	assert.Contains(t, text.String(), "Test Linux 9, asked by layerwright-agent v1\n\nok")
	assert.Equal(t, len(r.Checks)+2, strings.Count(text.String(), "\n"), "a line for each")
}

// TestNamesOfImagesAreHarmless to the terminal and the shell of who reads a report.
func TestNamesOfImagesAreHarmless(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.put("usr/lib/os-release", "PRETTY_NAME=\"Evil\x1b]0;x\x07 Linux\"\n")
	m.put("etc/containers/registries.d/$(reboot).yaml", "")
	require.NoError(t, os.Chmod(filepath.Join(m.root, "etc/containers/registries.d/$(reboot).yaml"), 0o600))
	r, err := m.check(t.Context(), false)
	require.NoError(t, err)
	assert.Equal(t, "Evil]0;x Linux", r.System)
	assert.Equal(t, "mend: images are pulled by a user without rights, who can't read it: something whose name has special characters", answers(r)["/etc/containers"])
}

func TestRoom(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := &checker{Options{Root: m.root}, &Report{}}
	c.room("/boot", 1<<62, "it does not fit")
	c.room("/boot", 0, "it does not fit")
	assert.Equal(t, []Result{Limited, OK}, []Result{c.report.Checks[0].Result, c.report.Checks[1].Result})
	assert.Contains(t, c.report.Checks[0].Answer, "it does not fit")

	m.put("boot/ostree/default-1/vmlinuz", "1234")
	m.put("boot/ostree/default-1/initramfs.img", "123456")
	m.put("boot/ostree/default-2/vmlinuz", "1")
	assert.Equal(t, int64(10), sizeOfKernel(filepath.Join(m.root, "boot/ostree")))
	assert.Zero(t, sizeOfKernel(filepath.Join(m.root, "none")))
}
