//go:build e2e

package e2e

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// wrong is what an administrator can do wrong, and what is said of it.
type wrong struct {
	// secret is given to the name "e2e-<pool>" before; nil gives none.
	secret []byte
	ask    func(*mcfgv1.MachineOSConfig)
	// ready, and either reconciling or stalled, are what the MachineOSConfig says, with HOST and
	// POOL for their names and KEY for a build key. The message is that of all of them.
	ready, reconciling, stalled string
	message                     string
	cure                        func(p *layered)
}

// ownSecret makes the push secret that of the test.
func ownSecret(c *mcfgv1.MachineOSConfig) {
	c.Spec.RenderedImagePushSecret.Name = "e2e-" + c.Name
}

// testWhatIsWrongIsSaid checks every word that people see of the common mistakes: conditions of the
// MachineOSConfig and of its pool, and events. Nothing is built meanwhile, and when the mistake is
// put right the image follows.
func testWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	b := newBuilds(t)
	outer := t // whose secrets are there until every pool has gone
	for name, tt := range map[string]wrong{
		"missing-secret": {
			ask: ownSecret, ready: "Unknown WaitingForSecret", reconciling: "True WaitingForSecret",
			message: `spec.renderedImagePushSecret: the secret "e2e-POOL" does not exist in namespace "` + stack.Namespace +
				"\"; create it with `kubectl create secret docker-registry`, or correct the name",
			cure: func(p *layered) { p.secret(t, "e2e-"+p.name, p.credentials(t, "push")) },
		},
		"garbled-secret": {
			secret: []byte(`{"auths":{"HOST":{"auth":"bm8tY29sb24="}}}`), ask: ownSecret,
			ready: "Unknown WaitingForSecret", reconciling: "True WaitingForSecret",
			message: `spec.renderedImagePushSecret: reading registry secret "layerwright/e2e-POOL", key ".dockerconfigjson", server "HOST": "auth" is not ` +
				`the base64 of name:password; give it "auth" (the base64 of name:password) or "username" and "password", or remove the server`,
			cure: func(p *layered) { p.secret(t, "e2e-"+p.name, p.credentials(t, "push")) },
		},
		"denied": {
			secret: b.credentials(t, "pull"), ask: ownSecret, ready: "False PushDenied", stalled: "True PushDenied",
			message: `spec.renderedImagePushSpec: checking access to repository "HOST/builds/POOL": the registry denies write access (403 Forbidden, DENIED: ` +
				`account pull may pull but not push); check that the push secret's account for "HOST" may push it, and that its password still holds`,
			cure: func(p *layered) {
				p.changeConfig(func(c *mcfgv1.MachineOSConfig) { c.Spec.RenderedImagePushSecret.Name = p.push })
			},
		},
		"unreachable": {
			ask: func(c *mcfgv1.MachineOSConfig) {
				c.Spec.RenderedImagePushSpec = "10.250.0.1:19/builds/unreachable:latest"
			},
			ready: "Unknown Retrying", reconciling: "True Retrying",
			message: `spec.renderedImagePushSpec: resolving image "10.250.0.1:19/builds/unreachable:unreachable-KEY": ` +
				`the registry "10.250.0.1:19" can't be reached: it refuses connections, does not answer, or is no registry; check its host and port, ` +
				`and allow it with --plain-http-registry where it has no TLS; the log of the controller says more`,
			cure: func(p *layered) {
				p.changeConfig(func(c *mcfgv1.MachineOSConfig) {
					c.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(p.host + "/" + imagesPath + "/" + p.name + ":latest")
				})
			},
		},
		"no-such-image": {
			ask: func(c *mcfgv1.MachineOSConfig) {
				c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(b.host + "/os/none:tiny")
			},
			ready: "False ImageNotFound", stalled: "True ImageNotFound",
			message: `spec.baseOSImagePullSpec: resolving image "HOST/os/none:tiny": it does not exist (404 Not Found); check the name, or push it again`,
			cure: func(p *layered) {
				p.changeConfig(func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseOSImagePullSpec = "" })
			},
		},
		"syntax-error": {
			ask: func(c *mcfgv1.MachineOSConfig) {
				c.Spec.Containerfile = []mcfgv1.MachineOSContainerfile{{ContainerfileArch: mcfgv1.NoArch, Content: new("FROM os-base-image\nRUNN true\n")}}
			},
			ready: "False InvalidContainerfile", stalled: "True InvalidContainerfile",
			message: `spec.containerFile[NoArch].content line 2: unknown instruction: "RUNN". Correct the keyword, or end the line before with a backslash`,
			cure:    func(p *layered) { p.changeConfig(func(c *mcfgv1.MachineOSConfig) { c.Spec.Containerfile = nil }) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := b.unasked(t, name)
			if tt.secret != nil {
				b.secret(outer, "e2e-"+name, []byte(p.fill(string(tt.secret))))
			}
			p.ask(tt.ask)
			p.requireSaid(tt)
			assert.Empty(t, p.machineOSBuilds(t.Context(), t))
			assert.Empty(t, p.config(t).Status.CurrentImagePullSpec)
			tt.cure(p)
			p.requireOneImage("one")
			assert.Equal(t, "none", conditionText(p.config(t).Status.Conditions, "Stalled"))
			assert.Equal(t, "none", conditionText(p.config(t).Status.Conditions, "Reconciling"))
			p.requirePool(map[string]string{
				"BuildSuccess": "True BuildSuccess Build succeeded for pool " + name, "BuildFailed": "False BuildSuccess",
				"BuildPending": "False BuildSuccess", "ImageBuildDegraded": "False BuildSuccess Build succeeded for pool " + name,
			})
			if tt.stalled != "" {
				p.toldOf(name, "ConfigReconciled", "The problem is solved")
			}
		})
	}
}

// buildKey is what differs with the content of the fixture.
var buildKey = regexp.MustCompile("[0-9a-f]{32}")

// fill puts the names of the registry and the pool into a text.
func (p *layered) fill(text string) string {
	return strings.NewReplacer("HOST", p.host, "POOL", p.name).Replace(text)
}

func (p *layered) requireSaid(w wrong) {
	p.t.Helper()
	message := p.fill(w.message)
	want := map[string]string{"Ready": w.ready + " " + message, "Reconciling": "none", "Stalled": "none"}
	pool := map[string]string{"BuildSuccess": "False BuildPending", "Building": "False BuildPending", "BuildInterrupted": "False BuildPending"}
	if w.stalled != "" {
		want["Stalled"] = w.stalled + " " + message
		said := "Failed to build OS image for pool " + p.name + ": " + strings.Fields(w.stalled)[1] + ": " + message
		pool = map[string]string{
			"BuildFailed": "True BuildFailed " + said, "ImageBuildDegraded": "True BuildFailed " + said,
			"BuildSuccess": "False BuildFailed", "Building": "False BuildFailed", "BuildInterrupted": "False BuildFailed",
		}
	} else {
		want["Reconciling"] = w.reconciling + " " + message
		pool["BuildPending"], pool["BuildFailed"], pool["ImageBuildDegraded"] = "True BuildPending "+message, "False BuildPending", "False BuildPending "+message
	}
	p.eventually(func(t *assert.CollectT) {
		conditions := p.config(t).Status.Conditions
		for kind, text := range want {
			assert.Equal(t, text, buildKey.ReplaceAllString(conditionText(conditions, kind), "KEY"), kind)
		}
	})
	p.requirePool(pool)
	if w.stalled != "" {
		p.toldOf(p.name, "ConfigReconcileFailed", strings.Fields(w.stalled)[1]+": "+message)
	}
}

// requirePool waits until the pool's conditions are these.
func (p *layered) requirePool(want map[string]string) {
	p.t.Helper()
	p.eventually(func(t *assert.CollectT) {
		pool := &mcfgv1.MachineConfigPool{}
		require.NoError(t, p.Get(p.t.Context(), client.ObjectKey{Name: p.name}, pool))
		for kind, text := range want {
			assert.Equal(t, text, buildKey.ReplaceAllString(conditionText(pool.GetConditions(), kind), "KEY"), kind)
		}
	})
}

// testNamesMakeNoImage: secrets with other names and the same content, a MachineConfig with another
// name and the same content, and a rendered MachineConfig with another name and the same image are
// no reason to build or to send anything.
func testNamesMakeNoImage(t *testing.T) {
	b := newBuilds(t)
	p := b.unasked(t, "renamed")
	p.ask()
	digest := p.requireOneImage("one")
	build := p.machineOSBuilds(t.Context(), t)[0]
	written := func() []string {
		return b.proxy.Requests(regexp.MustCompile("^(POST|PATCH|PUT|DELETE) /v2/" + imagesPath + "/" + p.name + "/"))
	}
	before := written()
	unchanged := func(why string) {
		t.Helper()
		p.eventually(func(t *assert.CollectT) {
			config := p.config(t)
			require.Equal(t, config.Generation, config.Status.ObservedGeneration)
			require.Equal(t, "True Succeeded", conditionText(config.Status.Conditions, "Ready"))
		})
		require.Equal(t, digest, p.requireOneImage("one"), why)
		require.Equal(t, build.UID, p.machineOSBuilds(t.Context(), t)[0].UID, why)
		require.Equal(t, before, written(), why)
	}

	b.secret(t, "e2e-renamed-push", b.credentials(t, "push"))
	b.secret(t, "e2e-renamed-pull", b.credentials(t, "pull"))
	p.changeConfig(func(c *mcfgv1.MachineOSConfig) {
		c.Spec.RenderedImagePushSecret.Name, c.Spec.BaseImagePullSecret.Name = "e2e-renamed-push", "e2e-renamed-pull"
	})
	unchanged("other names of the secrets")

	rendered := p.rendered()
	renamed := p.machineConfig("one")
	renamed.Name = "60-" + p.name
	require.NoError(t, b.Create(t.Context(), renamed))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(b.Delete(context.WithoutCancel(t.Context()), renamed)))
	})
	require.NoError(t, b.Delete(t.Context(), p.machineConfig("")))
	p.eventually(func(t *assert.CollectT) { assert.Equal(t, []string{"60-" + p.name}, p.sources(t)) })
	unchanged("another name of the MachineConfig")

	change(p, &mcfgv1.MachineConfig{}, renamed.Name, func(mc *mcfgv1.MachineConfig) { mc.Spec.KernelArguments = []string{"quiet"} })
	p.eventually(func(t *assert.CollectT) { assert.NotEqual(t, rendered, p.rendered()) })
	p.eventually(func(t *assert.CollectT) {
		assert.Equal(t, "True BuildSuccess Build succeeded for pool renamed", p.poolSays(t, "BuildSuccess"))
	})
	unchanged("another rendered MachineConfig, with the same content of the image")
}

// rendered is the rendered MachineConfig that the pool asks for.
func (p *layered) rendered() string {
	p.t.Helper()
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(p.t, p.Get(p.t.Context(), client.ObjectKey{Name: p.name}, pool))
	return pool.Spec.Configuration.Name
}

// sources are the MachineConfigs that the pool's configuration is rendered from.
func (p *layered) sources(t require.TestingT) []string {
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(t, p.Get(p.t.Context(), client.ObjectKey{Name: p.name}, pool))
	var names []string
	for _, source := range pool.Spec.Configuration.Source {
		names = append(names, source.Name)
	}
	return names
}

func (p *layered) poolSays(t require.TestingT, kind string) string {
	pool := &mcfgv1.MachineConfigPool{}
	require.NoError(t, p.Get(p.t.Context(), client.ObjectKey{Name: p.name}, pool))
	return conditionText(pool.GetConditions(), kind)
}
