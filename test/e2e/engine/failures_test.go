//go:build e2e

package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/internal/fault"
)

// replace puts text into the rendered Containerfile, which no controller would let through.
func (p *pod) replace(old, now string) {
	p.instructions.Containerfile = strings.ReplaceAll(p.instructions.Containerfile, old, now)
}

func TestFailuresNameTheLine(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		containerfile string
		old, now      string // what is replaced in the rendered file
		context       map[string]string
		message       string
		reason        string
		output        []string
	}{
		"a RUN line with what it wrote": {
			containerfile: "FROM os-base-image\n\nRUN true\nRUN echo one; echo two >&2; exit 3\n",
			message:       "Containerfile line 4: RUN echo one; echo two >&2; exit 3: exit status 3",
			output:        []string{"one", "two"},
		},
		"a RUN line over several lines": {
			containerfile: "FROM os-base-image\nRUN true && \\\n    echo oh && \\\n    false\n",
			message:       "Containerfile line 2: RUN true &&     echo oh &&     false: exit status 1",
			output:        []string{"oh"},
		},
		"a heredoc": {
			containerfile: "FROM os-base-image\nRUN <<EOF\nset -e\necho in\nno-such-command --now\necho never\nEOF\n",
			message:       "Containerfile line 2: RUN <<EOF: exit status 127",
			output:        []string{"in", "/bin/sh: no-such-command: not found"},
		},
		"a stage that another one copies from": {
			containerfile: "FROM os-base-image AS tools\nRUN false\nFROM os-base-image\nCOPY --from=tools /etc/motd /etc/motd\n",
			message:       "Containerfile line 2: RUN false: exit status 1",
		},
		"the same text twice": {
			containerfile: "FROM os-base-image\nRUN test ! -e /etc/once && touch /etc/once\nRUN true\nRUN test ! -e /etc/once && touch /etc/once\n",
			message:       "Containerfile line 4: RUN test ! -e /etc/once && touch /etc/once: exit status 1",
		},
		"after a stage that nothing needs": {
			containerfile: "FROM os-base-image AS unused\nRUN exit 7\nFROM os-base-image\nRUN exit 8\n",
			message:       "Containerfile line 4: RUN exit 8: exit status 8",
		},
		"a file that is not in the context": {
			containerfile: "FROM os-base-image\nCOPY motd /etc/motd\n", context: map[string]string{"motd": "x"},
			old: "COPY motd", now: "COPY moth",
			message: "Containerfile line 2: COPY moth /etc/motd: ",
		},
		"an unknown instruction": {
			containerfile: "FROM os-base-image\nRUN true\n", old: "RUN true", now: "WALK true",
			message: "Containerfile line 2: WALK true: unknown instruction", reason: mcfgv1.ReasonInvalidContainerfile,
		},
		"a command that is not there": {
			containerfile: "FROM os-base-image\nRUN [\"/no/such/program\"]\n",
			message:       "Containerfile line 2: RUN [\"/no/such/program\"]: exit status 1",
		},
		"a download": {
			containerfile: "FROM os-base-image\nADD http://127.0.0.1:1/file /etc/file\n",
			message:       "Containerfile line 2: ADD http://127.0.0.1:1/file /etc/file: ",
			reason:        mcfgv1.ReasonRetryingBuild,
		},
		"something that was killed": {
			containerfile: "FROM os-base-image\nRUN kill -9 $$\n",
			message:       "Containerfile line 2: RUN kill -9 $$: exit status 1: it was killed, most likely because there was no memory left",
			reason:        mcfgv1.ReasonRetryingBuild,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, newHub(t), tt.containerfile, tt.context)
			if tt.old != "" {
				p.replace(tt.old, tt.now)
			}
			p.succeed(t, backend.Fetch)
			e := p.run(t, backend.Build)
			require.NotNil(t, e.report.Failure, e.output)
			class, reason, code := fault.Terminal, mcfgv1.ReasonBuildFailed, backend.ExitAdmin
			if tt.reason != "" {
				reason = tt.reason
			}
			if reason == mcfgv1.ReasonRetryingBuild {
				class, code = fault.Transient, backend.ExitInfrastructure
			}
			assert.True(t, strings.HasPrefix(e.report.Failure.Message, tt.message), e.output)
			assert.Equal(t, class, e.report.Failure.Class)
			assert.Equal(t, reason, e.report.Failure.Reason)
			assert.Equal(t, code, e.code)
			if tt.output != nil {
				assert.Equal(t, tt.output, e.report.Failure.Output, "in the order in which it was written")
			}
		})
	}
}

// TestFailureIsTheLastLine has a line write more to one stream than a pipe holds before it says on
// the other why it fails.
func TestFailureIsTheLastLine(t *testing.T) {
	t.Parallel()
	const much = "i=0; while [ $i -lt 40000 ]; do echo line $i; i=$((i+1)); done"
	for name, line := range map[string]string{
		"much on stdout":          much + "; echo error: no such package >&2; exit 3",
		"much on stderr":          "{ " + much + "; } >&2; echo error: no such package; exit 3",
		"streams that take turns": "i=0; while [ $i -lt 20000 ]; do echo line $i; echo line $i >&2; i=$((i+1)); done; echo error: no such package >&2; exit 3",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, newHub(t), "FROM os-base-image\nRUN "+line+"\n", nil)
			p.succeed(t, backend.Fetch)
			for range 3 { // what is said last was lost in two of three runs
				e := p.run(t, backend.Build)
				require.NotNil(t, e.report.Failure)
				require.NotEmpty(t, e.report.Failure.Output)
				assert.Equal(t, "error: no such package", e.report.Failure.Output[len(e.report.Failure.Output)-1])
			}
		})
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	p := newPod(t, newHub(t), "FROM os-base-image\nRUN for i in $(seq 5000); do echo line $i; done; printf '\\033[31mred\\033[0m\\a'; false\n", nil)
	p.succeed(t, backend.Fetch)
	e := p.run(t, backend.Build)
	require.NotNil(t, e.report.Failure)
	output := e.report.Failure.Output
	assert.Contains(t, []int{19, 20}, len(output), "20 with the line that Buildah adds, which may be the end of the last one")
	assert.Equal(t, "red", output[len(output)-1])
	assert.Equal(t, "line 5000", output[len(output)-2])
}

func TestImagesThatCannotBePulled(t *testing.T) {
	t.Parallel()
	const other = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	tests := map[string]struct {
		prepare func(t *testing.T, p *pod)
		message []string
		reason  string
	}{
		"it does not exist": {
			prepare: func(_ *testing.T, p *pod) {
				name := p.hub.host + "/os/none@" + other
				p.replace("registry.invalid/tool:1", name)
				p.instructions.Images = append(p.instructions.Images[:1], backend.PinnedImage{Name: name, Image: name})
			},
			message: []string{"Containerfile line 1: pulling ", "/os/none@" + other, "it does not exist"},
		},
		"the secret has no credentials": {
			prepare: func(t *testing.T, p *pod) {
				t.Helper()
				p.write(t, "credentials/.dockerconfigjson", `{"auths":{"elsewhere.example":{"auth":"YTpi"}}}`)
			},
			message: []string{"the registry denies read access", "check the pull secret, which spec.baseImagePullSecret names"},
		},
		"its password is wrong": {
			prepare: func(t *testing.T, p *pod) {
				t.Helper()
				wrong := puller
				wrong.Password = "hunter2-is-wrong"
				p.login(t, wrong)
			},
			message: []string{"the registry denies read access", "check the pull secret, which spec.baseImagePullSecret names"},
		},
		"the policy wants a signature": {
			prepare: func(t *testing.T, p *pod) {
				t.Helper()
				p.write(t, "policy.json", `{"default":[{"type":"reject"}]}`)
			},
			message: []string{"policy.json of the pool refuses it"},
		},
		"its registry is blocked": {
			prepare: func(t *testing.T, p *pod) {
				t.Helper()
				p.write(t, "registries.conf", "[[registry]]\nlocation = \""+p.hub.host+"\"\nblocked = true\n")
			},
			message: []string{"registries.conf of the pool blocks its registry"},
		},
		"no one knows what a short name means": {
			prepare: func(_ *testing.T, p *pod) {
				p.instructions.Images = append(p.instructions.Images, backend.PinnedImage{Name: "fedora:40"})
			},
			message: []string{`resolving the short name "fedora:40"`, "name the image with its registry"},
		},
		"the policy is no JSON": {
			prepare: func(t *testing.T, p *pod) {
				t.Helper()
				p.write(t, "policy.json", "{")
			},
			message: []string{"reading policy.json of the pool"},
			reason:  mcfgv1.ReasonInvalid,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, newHub(t), "FROM registry.invalid/tool:1 AS tool\nFROM os-base-image\nCOPY --from=tool /etc/motd /etc/motd\n", nil)
			p.instructions.Images = p.instructions.Images[:1] // the tool is there for one of the cases
			tt.prepare(t, p)
			e := p.run(t, backend.Fetch)
			require.NotNil(t, e.report.Failure, e.output)
			for _, part := range tt.message {
				assert.Contains(t, e.report.Failure.Message, part)
			}
			reason := mcfgv1.ReasonImageNotFound
			if tt.reason != "" {
				reason = tt.reason
			}
			assert.Equal(t, reason, e.report.Failure.Reason)
			assert.Equal(t, fault.Terminal, e.report.Failure.Class)
			assert.Equal(t, backend.ExitAdmin, e.code)
			for _, account := range []string{puller.Password, "hunter2-is-wrong"} {
				assert.NotContains(t, e.output, account)
			}
		})
	}
}

func TestPushIsDenied(t *testing.T) {
	t.Parallel()
	p := newPod(t, newHub(t), "FROM os-base-image\nRUN true\n", nil)
	p.succeed(t, backend.Fetch)
	p.buildAndExport(t)
	p.login(t, puller)
	e := p.run(t, backend.Push)
	require.NotNil(t, e.report.Failure, e.output)
	assert.Equal(t, mcfgv1.ReasonPushDenied, e.report.Failure.Reason)
	assert.Equal(t, backend.ExitAdmin, e.code)
	assert.Contains(t, e.report.Failure.Message, "the registry denies write access")
}

func TestInstructionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	tests := map[string]func(in *backend.Instructions){
		"an architecture that no one has": func(in *backend.Instructions) { in.Architecture = "VAX" },
		"no Containerfile":                func(in *backend.Instructions) { in.Containerfile = "" },
		"an image without digest":         func(in *backend.Instructions) { in.Images[0].Image = "quay.example/a:b" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t, newHub(t), "FROM os-base-image\nRUN true\n", nil)
			change(&p.instructions)
			e := p.run(t, backend.Fetch)
			require.NotNil(t, e.report.Failure)
			assert.Equal(t, mcfgv1.ReasonInvalid, e.report.Failure.Reason)
			assert.Equal(t, backend.ExitAdmin, e.code)
		})
	}
}
