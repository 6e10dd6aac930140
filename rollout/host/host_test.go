package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

const repository = "registry.example.com/os/worker@sha256:"

func digit(d string) string { return "sha256:" + strings.Repeat(d, 64) }

func image(d string) mcfgv1.ImageDigestFormat {
	return mcfgv1.ImageDigestFormat(repository + strings.Repeat(d, 64))
}

func deployment(d, version string) *Deployment {
	return &Deployment{Image: string(image(d)), Digest: digit(d), Version: version}
}

// in is a deployment with the name of its files' folder.
func in(checkout string, d *Deployment) *Deployment {
	d.Checkout = checkout
	return d
}

// locked is a deployment that is staged and does not boot.
func locked(d *Deployment) *Deployment {
	d.Locked = true
	return d
}

// softly is a deployment that a soft reboot gets to.
func softly(d *Deployment) *Deployment {
	d.SoftReboots = true
	return d
}

func read(tb testing.TB, name string) []byte {
	tb.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(tb, err)
	return content
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		parse func([]byte) (Status, error)
		want  Status
	}{
		"bootc-1.1.json": {parseBootc, Status{
			Booted: in("bb.0", deployment("1", "9.20260201.0")), Staged: in("aa.0", deployment("2", "9.20260301.0")),
			Rollback: &Deployment{Pinned: true, Checkout: "cc.0", HasLocalPackages: true},
		}},
		"bootc-v1alpha1.json": {parseBootc, Status{
			Booted: &Deployment{Image: "registry.example.com/os/worker:latest", Digest: digit("1"), Checkout: "bb.0"}, RollbackQueued: true,
		}},
		"bootc-1.8.json": {parseBootc, Status{
			Booted:   &Deployment{Image: string(image("2")), Digest: digit("a"), Checkout: "bb.0", Version: "9.20260301.0"},
			Rollback: softly(in("cc.0", deployment("1", "9.20260201.0"))), RollbackQueued: true,
		}},
		"bootc-1.16.json": {parseBootc, Status{
			Booted: in("bb.0", deployment("1", "10.20260201.0")), Staged: softly(in("aa.0", deployment("2", "10.20260301.0"))),
		}},
		"bootc-composefs.json": {parseBootc, Status{
			Booted: &Deployment{Image: string(image("1")), Digest: digit("1"), Checkout: "bb"}, IsComposefs: true,
			Staged: &Deployment{Image: string(image("2")), Digest: digit("2"), Checkout: "aa"},
		}},
		"bootc-local-packages.json": {parseBootc, Status{
			Booted: &Deployment{Checkout: "bb.0", HasLocalPackages: true}, IsReadOnly: true, UsrIsUnlocked: true,
			Staged: locked(in("aa.0", deployment("2", "10.20260301.0"))),
		}},
		"rpm-ostree-busy.json": {parseRPMOSTree, Status{
			Booted: in("bb.0", deployment("1", "44.20260701.3.0")), Staged: locked(in("aa.0", deployment("2", "44.20260801.3.0"))),
			UsrIsUnlocked: true, Transaction: "upgrade",
		}},
		"rpm-ostree-2022.json": {parseRPMOSTree, Status{
			Booted: in("bb.0", deployment("2", "36.20221014.3.1")), Rollback: in("cc.0", deployment("1", "36.20221001.3.0")), RollbackQueued: true,
		}},
		"rpm-ostree-ref.json": {parseRPMOSTree, Status{Booted: &Deployment{Version: "34.20210427.2.1", Checkout: "bb.0"}}},
		"rpm-ostree-2024.json": {parseRPMOSTree, Status{
			Booted: in("bb.0", deployment("1", "9.20260201.0")), Staged: in("aa.0", deployment("2", "9.20260301.0")),
			Rollback: &Deployment{Checkout: "cc.0", Image: "registry.example.com/os/base:9", Digest: digit("0"), Version: "9.20260101.0", Pinned: true},
		}},
		"rpm-ostree-pivot.json": {parseRPMOSTree, Status{
			Booted:   &Deployment{Version: "411.85", Checkout: "ee.0"},
			Rollback: &Deployment{Checkout: "dd.0", Image: "registry.example.com/os/base@" + digit("3"), Digest: digit("3"), Version: "410.84"}, RollbackQueued: true,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.parse(read(t, name))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestEveryOutputIsTested(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("host_test.go")
	require.NoError(t, err)
	table := string(read(t, "README.md"))
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	for _, file := range files {
		assert.Contains(t, string(source), `"`+filepath.Base(file)+`": {parse`)
		assert.Contains(t, table, "| `"+filepath.Base(file)+"` |", "its source is named")
	}
}

func TestIsOf(t *testing.T) {
	t.Parallel()
	assert.True(t, deployment("1", "").IsOf(image("1")))
	assert.False(t, deployment("1", "").IsOf(image("2")))
	assert.True(t, (&Deployment{Image: string(image("1")), Digest: digit("a")}).IsOf(image("1")), "of an image for several architectures")
	assert.True(t, (&Deployment{Image: "registry.example.com/os/worker:latest", Digest: digit("1")}).IsOf(image("1")))
	assert.False(t, (*Deployment)(nil).IsOf(image("1")))
	assert.False(t, (&Deployment{}).IsOf(""), "what has no digest is of nothing")
}

// TestUnstagingAQueuedRollback is about what boots next without having been staged.
func TestUnstagingAQueuedRollback(t *testing.T) {
	t.Parallel()
	for mode, want := range map[Mode][]string{
		ModeBootc: {"bootc status --format=json", "bootc rollback"}, ModeRPMOSTree: {"rpm-ostree status --json", "rpm-ostree rollback"},
	} {
		run := &fakeRunner{answers: map[string]string{
			"bootc --version": "bootc 1.8.0", "rpm-ostree --version": "2022.10", "bootc status": string(read(t, "bootc-1.8.json")),
			"rpm-ostree status": string(read(t, "rpm-ostree-2022.json")), "bootc rollback": "", "rpm-ostree rollback": "",
		}}
		h, err := detect(t, run, mode)
		require.NoError(t, err)
		run.ran = nil
		require.NoError(t, h.Unstage(t.Context(), image("1")))
		assert.Equal(t, want, run.ran)
		run.ran = nil
		require.NoError(t, h.Rollback(t.Context()))
		assert.Equal(t, want[:1], run.ran, "it is queued already")
		run.ran = nil
		require.NoError(t, h.Unstage(t.Context(), image("7")))
		assert.Equal(t, want[:1], run.ran, "what others queued stays")
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		parse        func([]byte) (Status, error)
		out, want    string
		needsSomeone bool
	}{
		"bootc: no JSON":                {parseBootc, "error", "reading what bootc status says", false},
		"bootc: another kind":           {parseBootc, `{"kind":"Pod"}`, `its kind is "Pod", not BootcHost`, false},
		"bootc: nothing booted":         {parseBootc, `{"kind":"BootcHost","status":{"booted":null}}`, "it was not deployed from an image", true},
		"rpm-ostree: no JSON":           {parseRPMOSTree, "error", "reading what rpm-ostree status says", false},
		"rpm-ostree: no deployments":    {parseRPMOSTree, `{"deployments":[]}`, "it has no deployments", false},
		"rpm-ostree: nothing is booted": {parseRPMOSTree, `{"deployments":[{"booted":false}]}`, "rpm-ostree does not know what the host has booted", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.parse([]byte(tt.out))
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.needsSomeone, fault.IsTerminal(err))
		})
	}
}

// detect detects what manages a host without files.
func detect(t *testing.T, run Runner, mode Mode) (Host, error) {
	t.Helper()
	return (&Detector{run: run, root: fstest.MapFS{}, can: map[string]bool{}}).Detect(t.Context(), mode)
}

// fakeRunner answers commands, and remembers them. One that it does not know is not on the host,
// and one that begins with killed is killed.
type fakeRunner struct {
	answers map[string]string
	killed  string
	ran     []string
}

func (r *fakeRunner) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	command := strings.Join(append([]string{name}, args...), " ")
	r.ran = append(r.ran, command)
	if r.killed != "" && strings.HasPrefix(command, r.killed) {
		return In("/").Run(ctx, "sh", "-c", "kill -9 $$")
	}
	for beginning, answer := range r.answers {
		if strings.HasPrefix(command, beginning) {
			return []byte(answer), nil
		}
	}
	return nil, ErrNoProgram
}

func TestDetect(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		mode    Mode
		answers map[string]string
		want    Host
		fails   string
	}{
		"both":                        {ModeAuto, map[string]string{"bootc": "bootc 1.1.2", "rpm-ostree": "Version: '2024.6'"}, &bootc{}, ""},
		"rpm-ostree alone":            {ModeAuto, map[string]string{"rpm-ostree": "rpm-ostree:\n Version: '2022.10'\n"}, &rpmOSTree{}, ""},
		"bootc is too old":            {ModeAuto, map[string]string{"bootc": "bootc 0.1.9", "rpm-ostree": "Version: '2024.6'"}, &rpmOSTree{}, ""},
		"the pool asks for the other": {ModeRPMOSTree, map[string]string{"bootc": "bootc 1.1.2", "rpm-ostree": "Version: '2024.6'"}, &rpmOSTree{}, ""},
		"neither":                     {ModeAuto, nil, nil, "the host has neither bootc nor rpm-ostree"},
		"bootc is asked for and missing": {
			ModeBootc, map[string]string{"rpm-ostree": "Version: '2024.6'"}, nil, "spec.deployMode of the MachineConfigPool is bootc, and the host has no bootc: remove the field, or set it to image for rpm-ostree",
		},
		"bootc is asked for and too old": {ModeBootc, map[string]string{"bootc": "bootc 0.1.9"}, nil, "bootc 0.1 of the host is too old: at least 1.1 is needed"},
		"rpm-ostree is too old":          {ModeAuto, map[string]string{"rpm-ostree": "Version: '2018.10'"}, nil, "rpm-ostree 2018.10 of the host is too old"},
		"no version":                     {ModeAuto, map[string]string{"rpm-ostree": "hello"}, nil, `rpm-ostree --version says no version: "hello"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := detect(t, &fakeRunner{answers: tt.answers}, tt.mode)
			if tt.fails != "" {
				require.ErrorContains(t, err, tt.fails)
				assert.True(t, fault.IsTerminal(err), "a person has to change the host")
				return
			}
			require.NoError(t, err)
			assert.IsType(t, tt.want, got)
		})
	}
}

func TestAPolicyThatIsMissingIsExplained(t *testing.T) {
	t.Parallel()
	err := explained(errors.New("bootc switch: exit status 1: error: source image rejected: No signature verification policy found for image x"))
	require.ErrorContains(t, err, "run the controller with --enforce-signatures")
	require.NoError(t, explained(nil))
	other := errors.New("no space left on device")
	assert.Equal(t, other, explained(other))
}

func TestCommandLines(t *testing.T) {
	t.Parallel()
	bootcSays := string(read(t, "bootc-1.1.json"))
	ostreeSays := string(read(t, "rpm-ostree-2024.json"))
	const forget = "unshare --mount sh -c mount -o remount,rw /sysroot 2>/dev/null; exec ostree container image prune-layers --repo=/ostree/repo"
	tests := map[string]struct {
		mode Mode
		do   func(context.Context, Host) error
		want []string
	}{
		"bootc stages": {
			ModeBootc, func(ctx context.Context, h Host) error { return h.Stage(ctx, image("2"), TrustSignature) },
			[]string{"bootc status --format=json", forget, "bootc switch --enforce-container-sigpolicy " + string(image("2"))},
		},
		"rpm-ostree stages": {
			ModeRPMOSTree, func(ctx context.Context, h Host) error { return h.Stage(ctx, image("2"), TrustSignature) },
			[]string{forget, "rpm-ostree rebase --experimental ostree-image-signed:docker://" + string(image("2"))},
		},
		"bootc stages the OS image of a stream": {
			ModeBootc, func(ctx context.Context, h Host) error { return h.Stage(ctx, image("2"), TrustDigest) },
			[]string{"bootc status --format=json", forget, "bootc switch " + string(image("2"))},
		},
		"rpm-ostree stages the OS image of a stream": {
			ModeRPMOSTree, func(ctx context.Context, h Host) error { return h.Stage(ctx, image("2"), TrustDigest) },
			[]string{forget, "rpm-ostree rebase --experimental ostree-unverified-image:docker://" + string(image("2"))},
		},
		"rpm-ostree's daemon ends a pull that no one waits for": {
			ModeRPMOSTree, func(ctx context.Context, h Host) error {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return h.Stage(ctx, image("2"), TrustSignature)
			},
			[]string{forget, "rpm-ostree rebase --experimental ostree-image-signed:docker://" + string(image("2")), "rpm-ostree cancel"},
		},
		"bootc unstages what was asked for": {
			ModeBootc, func(ctx context.Context, h Host) error { return h.Unstage(ctx, image("2")) },
			[]string{"bootc status --format=json", "ostree admin undeploy 0"},
		},
		"bootc leaves what others staged": {
			ModeBootc, func(ctx context.Context, h Host) error { return h.Unstage(ctx, image("7")) }, []string{"bootc status --format=json"},
		},
		"rpm-ostree unstages what was asked for": {
			ModeRPMOSTree, func(ctx context.Context, h Host) error { return h.Unstage(ctx, image("2")) },
			[]string{"rpm-ostree status --json", "rpm-ostree cleanup --pending"},
		},
		"rpm-ostree leaves what others staged": {
			ModeRPMOSTree, func(ctx context.Context, h Host) error { return h.Unstage(ctx, image("7")) }, []string{"rpm-ostree status --json"},
		},
		"bootc rolls back":      {ModeBootc, func(ctx context.Context, h Host) error { return h.Rollback(ctx) }, []string{"bootc status --format=json", "bootc rollback"}},
		"rpm-ostree rolls back": {ModeRPMOSTree, func(ctx context.Context, h Host) error { return h.Rollback(ctx) }, []string{"rpm-ostree status --json", "rpm-ostree cleanup --pending", "rpm-ostree rollback"}},
		"kernel arguments": {
			ModeRPMOSTree, func(ctx context.Context, h Host) error {
				return h.SetKernelArguments(ctx, ArgumentChange{
					From: []string{"rw", "quiet", `a="b c"`, "z=4", "z=4"}, To: []string{"rw", `a="b c"`, "z=4", "nosmt", "z=4"},
				})
			},
			[]string{`rpm-ostree kargs --delete=quiet --delete=z=4 --append=nosmt --append=z=4`},
		},
		"no kernel arguments": {ModeRPMOSTree, func(ctx context.Context, h Host) error { return h.SetKernelArguments(ctx, ArgumentChange{}) }, nil},
		"a reboot": {
			ModeBootc, func(ctx context.Context, h Host) error { return h.Reboot(ctx, "to boot an image\nnow") },
			[]string{"systemctl reboot --message=to boot an image"},
		},
		"a soft reboot": {
			ModeBootc, func(ctx context.Context, h Host) error { return h.SoftReboot(ctx) },
			[]string{"ostree admin prepare-soft-reboot 0", "systemctl soft-reboot"},
		},
		"a soft reboot where there is none": {
			ModeRPMOSTree, func(ctx context.Context, h Host) error { return h.SoftReboot(ctx) }, []string{"systemctl reboot --message="},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := &fakeRunner{answers: map[string]string{
				"bootc --version": "bootc 1.1.2", "rpm-ostree --version": "2024.6", "bootc status": bootcSays, "rpm-ostree status": ostreeSays,
				"bootc switch": "", "bootc rollback": "", "ostree admin undeploy": "", "ostree admin prepare-soft-reboot": "", "rpm-ostree rebase": "", "rpm-ostree cleanup": "",
				"rpm-ostree cancel":   "",
				"rpm-ostree rollback": "", "rpm-ostree kargs": "", "systemctl": "",
			}}
			h, err := detect(t, run, tt.mode)
			require.NoError(t, err)
			run.ran = nil
			require.NoError(t, tt.do(t.Context(), h))
			assert.Equal(t, tt.want, run.ran)
		})
	}
}

// TestStagingWithLayersThatCantBeForgotten has a host without the command, and one where it fails:
// they stage all the same. A composefs store has no such layers.
func TestStagingWithLayersThatCantBeForgotten(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]map[string]string{
		"no command": {"bootc status": string(read(t, "bootc-1.1.json"))},
		"composefs":  {"bootc status": string(read(t, "bootc-composefs.json")), "unshare --mount": ""},
	} {
		run := &fakeRunner{answers: answers}
		answers["bootc --version"], answers["bootc switch"] = "bootc 1.16.0", ""
		h, err := detect(t, run, ModeBootc)
		require.NoError(t, err)
		run.ran = nil
		require.NoError(t, h.Stage(t.Context(), image("2"), TrustSignature), name)
		assert.Equal(t, name == "no command", slices.ContainsFunc(run.ran, func(line string) bool { return strings.HasPrefix(line, "unshare") }), name)
		assert.Contains(t, run.ran[len(run.ran)-1], "bootc switch", name)
	}
}

// TestASoftRebootThatCantBePrepared has an ostree before 2025.3: then nothing is rebooted.
func TestASoftRebootThatCantBePrepared(t *testing.T) {
	t.Parallel()
	run := &fakeRunner{answers: map[string]string{"bootc --version": "bootc 1.16.0", "systemctl": ""}}
	h, err := detect(t, run, ModeBootc)
	require.NoError(t, err)
	run.ran = nil
	require.Error(t, h.SoftReboot(t.Context()))
	assert.Equal(t, []string{"ostree admin prepare-soft-reboot 0"}, run.ran)
}

func TestRun(t *testing.T) {
	t.Parallel()
	out, err := In("/").Run(t.Context(), "printf", "%s", "a b")
	require.NoError(t, err)
	assert.Equal(t, "a b", string(out))
	out, err = In("/").Run(t.Context(), "printenv", "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT")
	require.NoError(t, err)
	assert.Equal(t, "1\n", string(out), "a reboot is none of user space, whoever has prepared one")
	_, err = In("/").Run(t.Context(), "ls", "/nowhere/https://me:secret@example.com")
	require.ErrorContains(t, err, "ls /nowhere")
	assert.NotContains(t, err.Error(), "secret", "what programs say may have credentials")
	_, err = In(t.TempDir()).Run(t.Context(), "bootc")
	require.ErrorIs(t, err, ErrNoProgram)
	require.EqualError(t, err, "bootc: there is no such program on the host")
}

func FuzzParse(f *testing.F) {
	entries, err := os.ReadDir("testdata")
	require.NoError(f, err)
	for _, e := range entries {
		if !e.IsDir() {
			f.Add(read(f, e.Name()))
		}
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		for _, parse := range []func([]byte) (Status, error){parseBootc, parseRPMOSTree} {
			if s, err := parse(out); err == nil {
				require.NotNil(t, s.Booted, "a host runs something")
			}
		}
	})
}

// TestAProgramThatHangsIsEnded has one that waits for another one, as bootc waits for what asks the
// registry.
func TestAProgramThatHangsIsEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := In("/").Run(ctx, "sh", "-c", "sleep 60; true")
		ended <- err
	}()
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(30 * time.Second):
		require.Fail(t, "it still runs")
	}
}

// TestUnstageByWhatTheHostHas has hosts that lack a program, or whose program does not know how.
func TestUnstageByWhatTheHostHas(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		mode Mode
		has  string
		want []string
	}{
		"bootc without ostree":   {ModeBootc, "rpm-ostree cleanup", []string{"ostree admin undeploy 0", "rpm-ostree cleanup --pending"}},
		"bootc with ostree":      {ModeBootc, "ostree admin undeploy", []string{"ostree admin undeploy 0"}},
		"rpm-ostree that fails":  {ModeRPMOSTree, "ostree admin undeploy", []string{"rpm-ostree cleanup --pending", "ostree admin undeploy 0"}},
		"bootc, and nothing can": {ModeBootc, "none", []string{"ostree admin undeploy 0", "rpm-ostree cleanup --pending"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := &fakeRunner{answers: map[string]string{
				"bootc --version": "bootc 1.1.2", "rpm-ostree --version": "2024.6", tt.has: "",
				"bootc status": string(read(t, "bootc-1.1.json")), "rpm-ostree status": string(read(t, "rpm-ostree-2024.json")),
			}}
			h, err := detect(t, run, tt.mode)
			require.NoError(t, err)
			run.ran = nil
			err = h.Unstage(t.Context(), image("2"))
			require.Equal(t, tt.has == "none", err != nil, "%v", err)
			require.Equal(t, tt.want, run.ran[1:])
		})
	}
}
