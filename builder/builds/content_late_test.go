package builds_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	ggcr "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/test/worldtest"
)

// autofs is what a package installs, and automount what an administrator configures for it.
var autofs = map[string]string{ //nolint:gosec // accounts without passwords, made up
	"usr/lib/systemd/system/autofs.service": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
	"etc/passwd":                            "root:x:0:0::/root:/bin/sh\nautofs:x:991:990::/:/sbin/nologin\n",
}

const automount = `{"ignition":{"version":"3.4.0"},"storage":{"files":[
	{"path":"/etc/auto.master.d/home.autofs","mode":384,"user":{"name":"autofs"},"contents":{"source":"data:,home"}}]},
	"systemd":{"units":[{"name":"autofs.service","enabled":true}]}}`

// TestConfigurationOfPackagesThatContentBrings has MachineConfigs about units and users of packages
// that the Containerfile installs.
func TestConfigurationOfPackagesThatContentBrings(t *testing.T) {
	t.Parallel()
	const link = "etc/systemd/system/multi-user.target.wants/autofs.service"
	for _, file := range []string{worldtest.ConfigsFirst, worldtest.CheapFile, worldtest.CheapFile + "COPY --from=configs /etc/motd /etc/motd\n"} {
		for _, imageFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%q, the image before it: %t", file, imageFirst), func(t *testing.T) {
				t.Parallel()
				w, _, use := worldtest.WithContent(t, file)
				w.Installs = autofs
				b := w.Builder(use)
				if imageFirst {
					w.Settle(b)
				}
				configured(w, automount)
				w.Settle(b)
				image := string(w.OSConfig("worker").Status.CurrentImagePullSpec)
				require.NotEmpty(t, image, w.Says("worker", status.Ready))
				assert.Equal(t, "/usr/lib/systemd/system/autofs.service", headerOf(w, image, link).Linkname)
				assert.Equal(t, 991, headerOf(w, image, "etc/auto.master.d/home.autofs").Uid)
				assert.Equal(t, "home", w.Unpacked(image, "amd64", "etc/auto.master.d/home.autofs"))
				assert.Contains(t, w.Unpacked(image, "amd64", "etc/machine-config-daemon/currentconfig"), `"user":{"id":991}`)
			})
		}
	}
}

func TestConfigurationOfPackagesThatNothingBrings(t *testing.T) {
	t.Parallel()
	for _, file := range []string{worldtest.ConfigsFirst, worldtest.CheapFile} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			w, _, use := worldtest.WithContent(t, file)
			configured(w, automount)
			b := w.Builder(use)
			w.Settle(b)
			said := worldtest.Text(w.Builds()[0].Status.Conditions, status.BuildFailed)
			assert.Contains(t, said, "True InvalidMachineConfig ")
			assert.Contains(t, said, `MachineConfig "rendered-worker-2": spec.config.systemd.units[0]: unit autofs.service: enabling "autofs.service"`)
			assert.Contains(t, said, `file /etc/auto.master.d/home.autofs: user "autofs" is not in the image below`)
		})
	}
}

// configured gives the pool another configuration.
func configured(w *worldtest.World, ignition string) {
	w.T.Helper()
	mc := w.Rendered("worker", "2", "", "")
	mc.Spec.Config = runtime.RawExtension{Raw: []byte(ignition)}
	w.Add(mc)
	w.Use("worker", mc.Name)
}

// headerOf is what an image has at a path.
func headerOf(w *worldtest.World, image, path string) *tar.Header {
	w.T.Helper()
	found := worldtest.Must(ggcr.Image(w.Registry.Parse(w.T, image), ggcr.WithPlatform(v1.Platform{OS: "linux", Architecture: string(mcfgv1.ArchitectureAMD64.OCI())})))
	r := tar.NewReader(mutate.Extract(found))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			require.Fail(w.T, "the image lacks "+path)
		}
		require.NoError(w.T, err)
		if header.Name == path {
			return header
		}
	}
}
