package offline_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/builder/remote"
	"github.com/layerwright/layerwright/cmd/layerwright/offline"
	"github.com/layerwright/layerwright/osimage/baseimage"
	"github.com/layerwright/layerwright/streams/compare"
)

const twoStreams = `
apiVersion: machineconfiguration.openshift.io/v1
kind: OSImageStream
metadata: {name: cluster}
spec:
  defaultStream: rhel-9
  images:
  - {name: rhel-9, osImage: "HOST/os:amd64", osExtensionsImage: "HOST/ext:1"}
  - {name: rhel-10, osImage: "HOST/os:multi", lifecycle: Deprecated}
`

func tryStream(t *testing.T, options offline.Options, stream string) (*compare.Report, error) {
	t.Helper()
	loader := baseimage.New(baseimage.Options{CacheDir: t.TempDir()})
	options.Indexer, options.Fetcher = loader, remote.New(remote.Options{})
	return offline.Trial(t.Context(), options, loader, stream)
}

func TestTrialFromFiles(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	extensions := strings.Replace(chrony, "kernelArguments:", "extensions: [usbguard]\n  kernelArguments:", 1)
	report, err := tryStream(t, offline.Options{Cluster: given(t, host, extensions, osConfig, twoStreams)}, "rhel-10")
	require.NoError(t, err)
	assert.Equal(t, "worker", report.Pool)
	assert.Equal(t, "rhel-9", report.From.Stream)
	assert.Equal(t, "rhel-10", report.To.Stream)
	assert.Regexp(t, "^"+host+"/os@sha256:[a-f0-9]{64}$", report.To.Image)
	assert.Nil(t, report.Packages, "these images have no database")
	assert.Contains(t, report.NotBuilt, "annotate the MachineOSConfig")
	var rules []string
	for _, f := range report.Blockers {
		rules = append(rules, f.Short())
	}
	for _, f := range report.Warnings {
		rules = append(rules, "("+f.Rule+")")
	}
	assert.Equal(t, []string{
		`ExtensionNotAvailable: MachineConfig "50-chrony"`, `InvalidMachineConfig: MachineConfigPool "worker"`,
		"(PackagesNotKnown)", "(PackagesNotKnown)", "(StreamEndOfLife)",
	}, rules)
	assert.NotContains(t, report.Text(), "secret", "what is printed may be read by anybody")
}

func TestTrialFromFilesWithOtherInputs(t *testing.T) {
	t.Parallel()
	host := serveImages(t)
	withBase := strings.ReplaceAll(osConfig, "  imageBuilder:", "  baseOSImagePullSpec: HOST/os:amd64\n  imageBuilder:")
	report, err := tryStream(t, offline.Options{Cluster: given(t, host, chrony, withBase, twoStreams)}, "rhel-10")
	require.NoError(t, err)
	require.Len(t, report.Blockers, 1)
	assert.Equal(t, `OtherOSImage: MachineOSConfig "worker", spec.baseOSImagePullSpec`, report.Blockers[0].Short())
	assert.NotEqual(t, report.From.Image, report.To.Image)

	_, err = tryStream(t, offline.Options{Cluster: given(t, host, chrony, twoStreams)}, "rhel-11")
	require.ErrorContains(t, err, `trying stream "rhel-11" for pool "worker": stream "rhel-11" is not available`)
	_, err = tryStream(t, offline.Options{Cluster: given(t, host, chrony, strings.Replace(twoStreams, "os:multi", "os:none", 1))}, "rhel-10")
	require.ErrorContains(t, err, "it has no image for linux")
}
