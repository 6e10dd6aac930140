//go:build e2e

package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/rollout/agent/hostcheck"
	rollouthost "github.com/layerwright/layerwright/rollout/host"
)

// TestHostCheck asks both kinds of host, and leaves them as they are.
func TestHostCheck(t *testing.T) {
	for has, hasNot := range map[string]string{"bootc": "rpm-ostree", "rpm-ostree": "bootc"} {
		t.Run(has, func(t *testing.T) {
			w := newWorld(t)
			require.NoError(t, os.Remove(filepath.Join(w.machine.Tools, "usr/bin", hasNot)))
			w.sign(w.push("worker", w.base))
			w.installAs(w.host + "/os/worker:latest")
			w.boot()
			agent := w.agent(rollouthost.ModeAuto)
			atFirst, err := agent.Status(t.Context())
			require.NoError(t, err)
			entries := w.sh("cat /boot/loader/entries/*.conf")
			check := func(disruptive bool) map[string]hostcheck.Check {
				root := w.machine.Root()
				report, err := hostcheck.Run(t.Context(), hostcheck.Options{
					Root: root, Run: rollouthost.In(root), Detect: rollouthost.NewDetector(root).Detect, Version: "v1", Disruptive: disruptive,
				})
				require.NoError(t, err)
				require.Zero(t, report.ToMend(), "%v", report.Checks)
				of := map[string]hostcheck.Check{}
				for _, c := range report.Checks {
					of[c.What] = c
				}
				return of
			}

			said := check(false)
			assert.Equal(t, "says no version", said[hasNot].Answer, "what the base image has in its place")
			assert.Contains(t, said["deployments"].Answer, "by "+has+"; "+w.host+"/os/worker@sha256:")
			assert.Contains(t, said["kernel arguments"].Answer, "2 of them")
			assert.NotContains(t, said, "staging")

			said = check(true)
			for _, what := range []string{"staging", "kernel arguments there", "kernel arguments back", "lock and unlock", "unstaging"} {
				assert.Equal(t, hostcheck.OK, said[what].Result, "%s: %s", what, said[what].Answer)
			}
			assert.Contains(t, said["staging"].Answer, "with its signature verified")
			after, err := agent.Status(t.Context())
			require.NoError(t, err)
			assert.Equal(t, atFirst, after)
			for _, left := range []string{"staged-deployment", "staged-deployment-locked"} {
				assert.NoFileExists(t, filepath.Join(w.machine.Root(), "run/ostree", left))
			}
			w.reboot()
			after, err = agent.Status(t.Context())
			require.NoError(t, err)
			assert.Equal(t, atFirst, after)
			assert.Equal(t, entries, w.sh("cat /boot/loader/entries/*.conf"))
		})
	}
}
