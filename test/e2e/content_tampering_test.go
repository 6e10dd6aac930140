//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/leaks"
)

// tampering lets a RUN line change the store that the steps share, on its way out of the root that
// Buildah gives it.
const tampering = `FROM HUNTER AS hunter
FROM os-base-image
COPY --from=hunter /usr/bin/hunter /usr/bin/hunter
RUN ["/usr/bin/hunter", "--tamper=HOW"]
RUN echo after > /usr/share/after
`

// testALineThatTampersGetsNoSecret has RUN lines put links to the push secret and giants where the
// libraries of the next steps read names and lists. However the build ends, nothing of a password
// is in objects, events and logs. What else could be there, test/e2e/engine tries.
func testALineThatTampersGetsNoSecret(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	for _, how := range []string{"links", "giants", "lists"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := v.unasked(t, "tampered-"+how)
			lines := strings.NewReplacer("HUNTER", v.hunter, "HOW", how).Replace(tampering)
			p.ask(containing(lines), func(c *mcfgv1.MachineOSConfig) {
				c.Spec.BaseImagePullSecret.Name, c.Spec.RenderedImagePushSecret.Name = "hunted-pull", "hunted-push"
				c.Spec.BuildTimeout, c.Spec.BuildRetryLimit = "1m", new(int32)
			})
			p.eventually(func(t *assert.CollectT) {
				conditions := p.config(t).Status.Conditions
				require.True(t, status.IsTrue(conditions, status.Ready) || status.IsTrue(conditions, status.Stalled), "%+v", conditions)
			})
			t.Logf("%+v", p.config(t).Status.Conditions)
			h := &hunt{builds: p.builds}
			var err error
			h.secrets, err = leaks.New(map[string][]byte{"the push password": []byte(huntedPush.Password), "the pull password": []byte(huntedPull.Password)})
			require.NoError(t, err)
			h.known, err = leaks.New(map[string][]byte{"the name of the pool": []byte(p.name)})
			require.NoError(t, err)
			h.cluster(t)
			assert.Empty(t, h.secrets.Found())
			assert.Subset(t, h.known.FoundIn(), []string{"event", "log", "object"}, "what is known to be there was found")
		})
	}
}
