package plan

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/coreos/stream-metadata-go/stream"
	"github.com/coreos/stream-metadata-go/stream/rhcos"
	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

var t0 = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

const (
	release9  = "9.6.20250826-1"
	release10 = "10.1.20250901-0"
)

// known are the streams of these tests: what their names say.
var known = map[string]struct {
	major   int
	variant string
}{
	"rhel-9": {9, ""}, "rhel9-coreos": {9, ""}, "rhel-10": {10, ""}, "rhel10-coreos": {10, ""}, "rhel-11": {11, ""},
	"rhel-9-nvidia": {9, "nvidia"}, "rhel-10-nvidia": {10, "nvidia"}, "rhel10-coreos-nvidia": {10, "nvidia"}, "rhel-10-edge": {10, "edge"},
}

func majors(name string) int { return known[name].major }

func variants(name string) string { return known[name].variant }

// offer are images of the marketplace of both generations.
func offer(publisher, name, version string) *rhcos.AzureMarketplaceImages {
	image := func(sku string) *rhcos.AzureMarketplaceImage {
		return &rhcos.AzureMarketplaceImage{Publisher: publisher, Offer: name, SKU: sku, Version: version}
	}
	return &rhcos.AzureMarketplaceImages{Gen1: image(name + "-gen1"), Gen2: image(name)}
}

// metadata is a stream with an image for every platform.
func metadata(name, release string, major int) *stream.Stream {
	arch := func(machine string) stream.Arch {
		artifact := func(platform, format string) stream.PlatformArtifacts {
			return stream.PlatformArtifacts{Release: release, Formats: map[string]stream.ImageFormat{format: {Disk: &stream.Artifact{
				Location: fmt.Sprintf("https://mirror.example.com/rhcos-%s-%s.%s.%s", release, platform, machine, format), Sha256: fmt.Sprintf("%064d", major),
			}}}}
		}
		version := fmt.Sprintf("%d.0.1", major)
		return stream.Arch{
			Artifacts: map[string]stream.PlatformArtifacts{
				"vmware": artifact("vmware", "ova"), "openstack": artifact("openstack", "qcow2.gz"), "metal": artifact("metal", "raw.gz"),
				"azure": {Release: release},
			},
			Images: stream.Images{
				Aws: &stream.AwsImage{Regions: map[string]stream.SingleImage{
					"us-east-1": {Release: release, Image: fmt.Sprintf("ami-%08d%d", len(machine), major)},
					"eu-west-1": {Release: release, Image: fmt.Sprintf("ami-1%07d%d", len(machine), major)},
				}},
				Gcp: &stream.GcpImage{Release: release, Project: "rhcos-cloud", Name: fmt.Sprintf("rhcos-%d-x-gcp-%s", major, map[string]string{
					"x86_64": "x86-64", "aarch64": "aarch64",
				}[machine])},
			},
			RHELCoreOSExtensions: &rhcos.Extensions{Marketplace: &rhcos.Marketplace{Azure: &rhcos.AzureMarketplace{
				NoPurchasePlan: offer("azureopenshift", "aro4", version), OCP: offer("redhat", "rh-ocp-worker", version),
				OKEEMEA: offer("redhat-limited", "rh-oke-worker", version),
			}}},
		}
	}
	return &stream.Stream{Stream: name, Architectures: map[string]stream.Arch{"x86_64": arch("x86_64"), "aarch64": arch("aarch64")}}
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// bothStreams are RHEL 9 and 10.
func bothStreams(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		KeyReleaseVersion: "4.21.0",
		KeyStream:         toJSON(t, metadata("rhcos-4.21", release9, 9)),
		KeyStreams: toJSON(t, map[string]*stream.Stream{
			"rhel-9": metadata("rhel-9", release9, 9), "rhel-10": metadata("rhel-10", release10, 10),
		}),
	}
}

func images(t *testing.T, data map[string]string) *BootImages {
	t.Helper()
	b, err := Parse(data, majors, variants)
	require.NoError(t, err)
	return b
}

// spec reads a provider specification as the API server's clients do.
func spec(t *testing.T, text string) Spec {
	t.Helper()
	var s Spec
	require.NoError(t, utiljson.Unmarshal([]byte(text), &s))
	return s
}

// input is a resource of a pool on RHEL 9.
func input(t *testing.T, kind, text string) Input {
	t.Helper()
	in := Input{
		Images: images(t, bothStreams(t)), Stream: "rhel9-coreos", Architecture: "amd64", Region: "us-east-1", Now: t0, CanUpload: true,
		Resource: Resource{Labels: map[string]string{labelInfra: "lab-x7"}, ProviderKind: kind},
	}
	if text != "" {
		in.Resource.ProviderSpec = spec(t, text)
	}
	return in
}
