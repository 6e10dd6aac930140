package machineconfigs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

var streamImages = Images{OSImage: "quay.io/os/stream@sha256:aa", ExtensionsImage: "quay.io/os/extensions@sha256:bb", Stream: "rhel-10"}

func render(t *testing.T, configs ...*mcfgv1.MachineConfig) *Rendered {
	t.Helper()
	r, err := Render(Options{Pool: "worker", Images: streamImages, ControllerVersion: "1.2.3", ReleaseVersion: "4.20.0"}, configs)
	require.NoError(t, err)
	return r
}

func contentOfFile(t *testing.T, r *Rendered, path string) string {
	t.Helper()
	for _, f := range r.Config.Ignition.Storage.Files {
		if f.Path == path {
			data, _, err := DecodeContents(f.Contents)
			require.NoError(t, err)
			return string(data)
		}
	}
	require.Fail(t, "no such file", path)
	return ""
}

func TestRenderNothing(t *testing.T) {
	t.Parallel()
	r := render(t)
	require.Empty(t, r.Sources)
	require.Equal(t, streamImages.OSImage, r.MachineConfig.Spec.OSImageURL)
	require.Equal(t, streamImages.ExtensionsImage, r.MachineConfig.Spec.BaseOSExtensionsContainerImage)
	require.Equal(t, []string{}, r.MachineConfig.Spec.KernelArguments)
	require.Equal(t, []string{}, r.MachineConfig.Spec.Extensions)
	require.Equal(t, mcfgv1.KernelTypeDefault, r.MachineConfig.Spec.KernelType)
	require.Equal(t, empty(), r.Config.Ignition)
	require.Equal(t, map[string]string{
		mcfgv1.AnnotationGeneratedByControllerVersion: "1.2.3",
		mcfgv1.AnnotationReleaseImageVersion:          "4.20.0",
		mcfgv1.AnnotationOSImageStream:                "rhel-10",
	}, r.MachineConfig.Annotations)
	require.True(t, IsRendered(r.MachineConfig))
}

func TestStreamMarkNeedsTheStreamsImage(t *testing.T) {
	t.Parallel()
	stream := func(r *Rendered) string { return r.MachineConfig.Annotations[mcfgv1.AnnotationOSImageStream] }
	image := func(of string) option { return spec(func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = of }) }
	require.Equal(t, "rhel-10", stream(render(t, machineConfig("00-worker", "", image(streamImages.OSImage)))))
	require.Empty(t, stream(render(t, machineConfig("99-own", "", image("quay.io/own/os:1")))))
	none, err := Render(Options{Pool: "worker", Images: Images{Stream: "rhel-10"}}, nil)
	require.NoError(t, err)
	require.Empty(t, stream(none))
}

// TestStreamMachineConfigsOverrideOthers has, in one MachineConfig of each kind, everything that
// MachineConfigs can both have.
func TestStreamMachineConfigsOverrideOthers(t *testing.T) {
	t.Parallel()
	config := func(name, value string, options ...option) *mcfgv1.MachineConfig {
		options = append(options, spec(func(s *mcfgv1.MachineConfigSpec) {
			s.KernelType, s.KernelArguments, s.BaseOSExtensionsContainerImage = value, []string{"from=" + name}, "quay.io/extensions/"+name
		}))
		return machineConfig(name, ignition(`"storage":{"files":[`+file("/etc/a", name)+`,`+file("/etc/"+name, name)+`]},
			"systemd":{"units":[{"name":"a.service","contents":"[Unit]\nDescription=`+name+`\n","dropins":[{"name":"10-a.conf","contents":"[Unit]\nWants=`+name+`.service\n"}]}]}`), options...)
	}
	of := labelled(mcfgv1.LabelOSStream, "rhel-10")
	r := render(
		t,
		config("00-stream-worker", "default", role("worker"), of), config("99-worker", "realtime", role("worker")),
		config("99-infra", "realtime", role("infra")), config("01-stream-infra", "64k-pages", role("infra"), of),
	)
	require.Equal(t, []string{"99-worker", "99-infra", "00-stream-worker", "01-stream-infra"}, r.Sources)
	require.Equal(t, "01-stream-infra", contentOfFile(t, r, "/etc/a"))
	require.Equal(t, "99-worker", contentOfFile(t, r, "/etc/99-worker"), "what only one has stays")
	unit := r.Config.Ignition.Systemd.Units[0]
	require.Equal(t, "[Unit]\nDescription=01-stream-infra\n", *unit.Contents)
	require.Equal(t, "[Unit]\nWants=01-stream-infra.service\n", *unit.Dropins[0].Contents)
	require.Equal(t, "64k-pages", r.Config.KernelType)
	require.Equal(t, "quay.io/extensions/01-stream-infra", r.Config.ExtensionsImage)
	require.Equal(t, []string{"from=99-worker", "from=99-infra", "from=00-stream-worker", "from=01-stream-infra"}, r.Config.KernelArguments)
}

func TestRenderOrder(t *testing.T) {
	t.Parallel()
	t.Run("the last by name wins, whatever the order of the list", func(t *testing.T) {
		t.Parallel()
		r := render(t, machineConfig("99-c", files(file("/etc/a", "c"))), machineConfig("00-a", files(file("/etc/a", "a"))), machineConfig("50-b", files(file("/etc/a", "b"))))
		require.Equal(t, []string{"00-a", "50-b", "99-c"}, r.Sources)
		require.Equal(t, "c", contentOfFile(t, r, "/etc/a"))
	})
	t.Run("a custom pool's own win over the worker's", func(t *testing.T) {
		t.Parallel()
		r := render(t, machineConfig("99-worker-generated-kubelet", files(file("/etc/a", "worker")), role("worker")),
			machineConfig("99-infra-generated-kubelet", files(file("/etc/a", "infra")), role("infra")))
		require.Equal(t, []string{"99-worker-generated-kubelet", "99-infra-generated-kubelet"}, r.Sources)
		require.Equal(t, "infra", contentOfFile(t, r, "/etc/a"))
	})
}

func TestRenderJoinsFields(t *testing.T) {
	t.Parallel()
	r := render(
		t,
		machineConfig("50-a", "", spec(func(s *mcfgv1.MachineConfigSpec) {
			s.KernelArguments, s.Extensions, s.KernelType, s.FIPS = []string{"a", "b"}, []string{"usbguard", "ipsec"}, mcfgv1.KernelTypeRealtime, true
		})),
		machineConfig("60-b", "", spec(func(s *mcfgv1.MachineConfigSpec) {
			s.KernelArguments, s.Extensions = []string{"c", "a"}, []string{"ipsec", "kerberos"}
		})),
		machineConfig("70-c", ignition(`"kernelArguments":{"shouldExist":["first"],"shouldNotExist":["quiet"]}`), spec(func(s *mcfgv1.MachineConfigSpec) {
			s.KernelType = mcfgv1.KernelType64kPages
		})),
	)
	require.Equal(t, []string{"a", "b", "c", "a"}, r.MachineConfig.Spec.KernelArguments, "a command line: in order, nothing left out")
	require.Equal(t, []string{"first", "a", "b", "c", "a"}, r.Config.KernelArguments)
	require.Equal(t, []string{"quiet"}, r.Config.RemoveKernelArguments)
	require.Equal(t, []string{"ipsec", "kerberos", "usbguard"}, r.MachineConfig.Spec.Extensions)
	require.Equal(t, mcfgv1.KernelType64kPages, r.MachineConfig.Spec.KernelType)
	require.True(t, r.MachineConfig.Spec.FIPS)
}

func TestRenderJoinsIgnition(t *testing.T) {
	t.Parallel()
	r := render(
		t,
		machineConfig("50-a", ignition(`"storage":{"files":[`+file("/etc/a", "a")+`],"directories":[{"path":"/etc/d","mode":448}],"links":[{"path":"/etc/l","target":"/etc/a"}]},
			"systemd":{"units":[{"name":"a.service","contents":"[Unit]\nDescription=a","dropins":[{"name":"10.conf","contents":"[Service]"}]}]},
			"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["one"]}]}`)),
		machineConfig("60-b", ignition(`"storage":{"files":[{"path":"/etc/a","mode":384},`+file("/etc/l", "now%20a%20file")+`]},
			"systemd":{"units":[{"name":"a.service","enabled":true,"dropins":[{"name":"10.conf","contents":"[Unit]"},{"name":"20.conf","contents":"[Service]"}]}]},
			"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["two"],"passwordHash":"$6$x"}]}`)),
	)
	got, err := yaml.JSONToYAML(r.MachineConfig.Spec.Config.Raw)
	require.NoError(t, err)
	golden(t, "joined.yaml", got)
}

func TestRenderSetsOverwrite(t *testing.T) {
	t.Parallel()
	r := render(t, machineConfig("50-a", files(file("/etc/unsaid", "x")+`,
		{"path":"/etc/false","overwrite":false,"contents":{"source":"data:,x"}},
		{"path":"/etc/true","overwrite":true,"contents":{"source":"data:,x"}},
		{"path":"/etc/empty","contents":{"source":""}},
		{"path":"/etc/appended","append":[{"source":"data:,x"}]},
		{"path":"/etc/mode","mode":384}`)))
	got := map[string]*bool{}
	for _, f := range r.Config.Ignition.Storage.Files {
		got[f.Path] = f.Overwrite
	}
	require.Equal(t, map[string]*bool{
		"/etc/unsaid": ptr(true), "/etc/false": ptr(false), "/etc/true": ptr(true), "/etc/empty": ptr(true),
		"/etc/appended": nil, "/etc/mode": nil, // nothing to overwrite with: Ignition refuses true there
	}, got)
}

func TestRenderKeepsRemoteSources(t *testing.T) {
	t.Parallel()
	r := render(t, machineConfig("50-a", files(`{"path":"/etc/a","contents":{"source":"https://x/a","verification":{"hash":"sha256-`+strings.Repeat("0", 64)+`"}}}`)))
	require.Equal(t, "https://x/a", *r.Config.Ignition.Storage.Files[0].Contents.Source)
	require.Contains(t, string(r.MachineConfig.Spec.Config.Raw), `"source":"https://x/a","verification":{"hash":"sha256-0000`)
}

func TestRenderImages(t *testing.T) {
	t.Parallel()
	osImage := func(image string) option { return spec(func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = image }) }
	extensionsImage := func(image string) option {
		return spec(func(s *mcfgv1.MachineConfigSpec) { s.BaseOSExtensionsContainerImage = image })
	}
	extensions := spec(func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"usbguard"} })
	explicit := streamImages
	explicit.Explicit = true
	tests := map[string]struct {
		images         Images
		configs        []*mcfgv1.MachineConfig
		os, extensions string
	}{
		"the stream's": {
			explicit,
			[]*mcfgv1.MachineConfig{machineConfig("50-a", "", extensions)},
			streamImages.OSImage, streamImages.ExtensionsImage,
		},
		"none, where there is no stream": {Images{}, nil, "", ""},
		"an override leaves the stream's extensions image alone": {
			streamImages,
			[]*mcfgv1.MachineConfig{machineConfig("50-a", "", osImage("quay.io/my/os:1"))},
			"quay.io/my/os:1", "",
		},
		"an override with its own extensions image": {
			streamImages,
			[]*mcfgv1.MachineConfig{machineConfig("50-a", "", osImage("quay.io/my/os:1"), extensionsImage("quay.io/my/ext:1"), extensions)},
			"quay.io/my/os:1", "quay.io/my/ext:1",
		},
		"an override that names the stream's extensions image": {
			streamImages,
			[]*mcfgv1.MachineConfig{machineConfig("50-a", "", osImage("quay.io/my/os:1"), extensionsImage(streamImages.ExtensionsImage), extensions)},
			"quay.io/my/os:1", streamImages.ExtensionsImage,
		},
		"the last override": {
			streamImages,
			[]*mcfgv1.MachineConfig{machineConfig("60-b", "", osImage("quay.io/my/os:2")), machineConfig("50-a", "", osImage("quay.io/my/os:1"))},
			"quay.io/my/os:2", "",
		},
		"the stream's own image overrides nothing": {
			explicit,
			[]*mcfgv1.MachineConfig{machineConfig("00-worker", "", osImage(streamImages.OSImage), extensions)},
			streamImages.OSImage, streamImages.ExtensionsImage,
		},
		"an override that a later one takes back": {
			explicit,
			[]*mcfgv1.MachineConfig{machineConfig("50-a", "", osImage("quay.io/my/os:1")), machineConfig("60-b", "", osImage(streamImages.OSImage))},
			streamImages.OSImage, streamImages.ExtensionsImage,
		},
		"a digest counts beside a tag": {
			Images{},
			[]*mcfgv1.MachineConfig{machineConfig("50-a", "",
				osImage("quay.io/my/os:1@sha256:"+strings.Repeat("1", 64)), extensionsImage("quay.io:443/my/ext:1@sha256:"+strings.Repeat("2", 64)))},
			"quay.io/my/os@sha256:" + strings.Repeat("1", 64), "quay.io:443/my/ext@sha256:" + strings.Repeat("2", 64),
		},
		"another extensions image for the stream's OS image": {
			explicit,
			[]*mcfgv1.MachineConfig{machineConfig("50-a", "", extensionsImage("quay.io/my/ext:1"), extensions)},
			streamImages.OSImage, "quay.io/my/ext:1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Render(Options{Pool: "worker", Images: test.images}, test.configs)
			require.NoError(t, err)
			require.Equal(t, test.os, r.MachineConfig.Spec.OSImageURL)
			require.Equal(t, test.os, r.Config.OSImageURL)
			require.Equal(t, test.extensions, r.MachineConfig.Spec.BaseOSExtensionsContainerImage)
			require.Equal(t, test.extensions, r.Config.ExtensionsImage)
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	gzipped := `{"path":"/etc/a","contents":{"compression":"gzip","source":"` + base64URL(compressed(t, []byte("x"))) + `"}}`
	explicit := streamImages
	explicit.Explicit = true
	tests := map[string]struct {
		images  Images
		configs []*mcfgv1.MachineConfig
		reason  string
		want    string
	}{
		"an OS image beside a stream": {
			explicit,
			[]*mcfgv1.MachineConfig{machineConfig("50-os", "", spec(func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = "quay.io/my/os:1" }))},
			mcfgv1.ReasonOSImageURLConflict,
			`MachineConfig "50-os": spec.osImageURL: cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously`,
		},
		"extensions without a place to come from": {
			streamImages,
			[]*mcfgv1.MachineConfig{
				machineConfig("50-os", "", spec(func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = "quay.io/my/os:1" })),
				machineConfig("60-ext", "", spec(func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"usbguard", "ipsec"} })),
			},
			mcfgv1.ReasonInvalidMachineConfig,
			`MachineConfig "50-os": spec.osImageURL: osImageURL replaces the stream's OS image, so there is no image to install extensions (ipsec, usbguard) from: ` +
				`set baseOSExtensionsContainerImage beside osImageURL, to the extensions image that belongs to it (quay.io/os/extensions@sha256:bb if it was built from the image of stream "rhel-10")`,
		},
		"a kernel without a place to come from": {
			Images{},
			[]*mcfgv1.MachineConfig{machineConfig("50-os", "", spec(func(s *mcfgv1.MachineConfigSpec) {
				s.OSImageURL, s.KernelType = "quay.io/my/os:1", mcfgv1.KernelTypeRealtime
			}))},
			mcfgv1.ReasonInvalidMachineConfig,
			`MachineConfig "50-os": spec.osImageURL: osImageURL replaces the stream's OS image, so there is no image to install the realtime kernel from: ` +
				`set baseOSExtensionsContainerImage beside osImageURL, to the extensions image that belongs to it`,
		},
		"kernel-devel for another kernel": {
			streamImages,
			[]*mcfgv1.MachineConfig{
				machineConfig("50-kernel", "", spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelType = mcfgv1.KernelTypeRealtime })),
				machineConfig("60-ext", "", spec(func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"kernel-devel"} })),
			},
			mcfgv1.ReasonInvalidMachineConfig,
			`MachineConfig "50-kernel": spec.kernelType: the extension kernel-devel belongs to the default kernel, and kernelType is realtime: leave one of them out`,
		},
		"a kernel argument that another one forbids": {
			streamImages,
			[]*mcfgv1.MachineConfig{
				machineConfig("50-a", ignition(`"kernelArguments":{"shouldNotExist":["quiet"]}`)),
				machineConfig("60-b", "", spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"nosmt", "quiet"} })),
			},
			mcfgv1.ReasonInvalidMachineConfig,
			`MachineConfig "60-b": spec.kernelArguments[1]: kernel argument "quiet" is asked for, and spec.config.kernelArguments.shouldNotExist forbids it: remove one of the two`,
		},
		"mistakes of several": {
			streamImages,
			[]*mcfgv1.MachineConfig{
				machineConfig("60-b", "", spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "fast" })),
				machineConfig("50-a", files(file("etc/a", "x"))),
				machineConfig("55-good", files(file("/etc/a", "x"))),
			},
			mcfgv1.ReasonInvalidMachineConfig,
			`MachineConfig "50-a": storage.files[0].path (file "etc/a"), line 1, column 61: path not absolute: start the path with a slash` + "\n" +
				`MachineConfig "60-b": spec.kernelType: kernel type "fast" is not known; use default, realtime or 64k-pages`,
		},
		"a name twice": {
			streamImages,
			[]*mcfgv1.MachineConfig{machineConfig("50-a", ""), machineConfig("50-a", "")},
			mcfgv1.ReasonInvalidMachineConfig, `MachineConfig "50-a": metadata.name: there are two MachineConfigs with this name`,
		},
		"nothing where a MachineConfig belongs": {
			streamImages, []*mcfgv1.MachineConfig{nil}, mcfgv1.ReasonInvalidMachineConfig, `there is no MachineConfig`,
		},
		"an owner that two say differently": {
			streamImages,
			[]*mcfgv1.MachineConfig{
				machineConfig("50-a", files(`{"path":"/etc/a","user":{"id":1000}}`)),
				machineConfig("60-b", files(file("/etc/0", "x")+`,{"path":"/etc/a","user":{"name":"core"}}`)),
			},
			mcfgv1.ReasonInvalidMachineConfig,
			`MachineConfig "60-b": storage.files[0].user (file "/etc/a"): joined with MachineConfig "50-a": cannot set both id and name: remove one of the two`,
		},
		"content that is read with another's compression": {
			streamImages,
			[]*mcfgv1.MachineConfig{machineConfig("50-a", files(gzipped)), machineConfig("60-b", files(file("/etc/a", "plain%20text")))},
			mcfgv1.ReasonInvalidMachineConfig,
			`MachineConfig "60-b": storage.files[0].contents (file "/etc/a"): joined with MachineConfig "50-a": decompressing: gzip: invalid header; ` +
				`set compression to "" if the content is not compressed; a MachineConfig that replaces contents.source takes over what an earlier one says beside it: ` +
				`set contents.compression ("" for none) and contents.verification too`,
		},
		"a file below another's link": {
			streamImages,
			[]*mcfgv1.MachineConfig{
				machineConfig("50-a", ignition(`"storage":{"links":[{"path":"/etc/l","target":"/etc/m"}]}`)),
				machineConfig("60-b", ignition(`"storage":{"files":[`+file("/etc/l/deep/x", "x")+`],"directories":[{"path":"/etc/l/d"}],"links":[{"path":"/etc/l/l","target":"x"}]}`)),
			},
			mcfgv1.ReasonInvalidMachineConfig,
			`MachineConfig "60-b": storage.directories[0].path (directory "/etc/l/d"): the path leads through link "/etc/l" of MachineConfig "50-a": write the path that the link leads to` + "\n" +
				`MachineConfig "60-b": storage.files[0].path (file "/etc/l/deep/x"): the path leads through link "/etc/l" of MachineConfig "50-a": write the path that the link leads to` + "\n" +
				`MachineConfig "60-b": storage.links[1].path (link "/etc/l/l"): the path leads through link "/etc/l" of MachineConfig "50-a": write the path that the link leads to`,
		},
		"a file in the place of another's drop-in": {
			streamImages,
			[]*mcfgv1.MachineConfig{
				machineConfig("50-a", ignition(`"systemd":{"units":[{"name":"a.service","dropins":[{"name":"10.conf","contents":"[Unit]"}]}]}`)),
				machineConfig("60-b", files(file("/etc/systemd/system/a.service.d/10.conf", "x"))),
			},
			mcfgv1.ReasonInvalidMachineConfig,
			`MachineConfig "60-b": storage.files[0].path (file "/etc/systemd/system/a.service.d/10.conf"): path conflicts with systemd unit or dropin: ` +
				`say it either as a unit or as a file (unit "a.service" is in MachineConfig "50-a")`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Render(Options{Pool: "worker", Images: test.images}, test.configs)
			require.EqualError(t, err, test.want)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, test.reason, e.Reason)
		})
	}
}

func TestRenderNeedsAPool(t *testing.T) {
	t.Parallel()
	_, err := Render(Options{}, nil)
	require.EqualError(t, err, "rendering needs the name of a pool")
}

func TestRenderDoesNotChangeItsInput(t *testing.T) {
	t.Parallel()
	configs := []*mcfgv1.MachineConfig{
		machineConfig("60-b", files(file("/etc/a", "b")), spec(func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"usbguard", "ipsec"} })),
		machineConfig("50-a", files(file("/etc/a", "a"))),
	}
	before := []*mcfgv1.MachineConfig{configs[0].DeepCopy(), configs[1].DeepCopy()}
	first := render(t, configs...)
	require.Equal(t, before, configs)
	for _, mc := range configs {
		clear(mc.Spec.Config.Raw) // nothing of the result may be a part of the input
	}
	second := render(t, before...)
	require.Equal(t, second, first)
}

// namedPools are inputs whose names are known for ever. A name that changes builds every image
// anew, on every cluster, at the next upgrade: that has to be meant.
func namedPools() map[string][]*mcfgv1.MachineConfig {
	return map[string][]*mcfgv1.MachineConfig{
		"nothing":    nil,
		"one file":   {machineConfig("50-a", files(file("/etc/a", "x")))},
		"everything": everything(),
	}
}

// everything has something of all that can be joined.
func everything() []*mcfgv1.MachineConfig {
	return []*mcfgv1.MachineConfig{
		machineConfig("50-a", ignition(`"storage":{"files":[`+file("/etc/a", "a%20%26b")+`,{"path":"/etc/append","append":[{"source":"data:,1"},{"source":"data:;base64,Mg=="}]}],
			"directories":[{"path":"/etc/d","mode":448}],"links":[{"path":"/etc/l","target":"/etc/a"}]},
			"systemd":{"units":[{"name":"a.service","contents":"[Unit]\nDescription=<a> & \"source\":\"b\"","enabled":true}]},
			"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["one"]}],"groups":[{"name":"g","gid":1234}]},"kernelArguments":{"shouldExist":["x"]}`),
			spec(func(s *mcfgv1.MachineConfigSpec) {
				s.Extensions, s.KernelType, s.FIPS, s.KernelArguments = []string{"usbguard"}, mcfgv1.KernelTypeRealtime, true, []string{"nosmt"}
			})),
		machineConfig("60-b", files(file("/etc/a", "b")+`,{"path":"/etc/remote","contents":{"source":"https://x/y?a=1&b=2","verification":{"hash":"sha256-`+strings.Repeat("0", 64)+`"}}}`)),
		machineConfig("70-secret", files(file("/etc/secret", "s")), nodeOnly()),
	}
}

func TestRenderedNames(t *testing.T) {
	t.Parallel()
	var lines []string
	for name, configs := range namedPools() {
		for _, pool := range []string{"worker", "infra"} {
			r, err := Render(Options{Pool: pool, Images: streamImages}, configs)
			require.NoError(t, err)
			require.Regexp(t, `^rendered-`+pool+`-[0-9a-f]{32}$`, r.MachineConfig.Name)
			require.Equal(t, r.MachineConfig.Name, r.Config.Name)
			lines = append(lines, name+": "+r.MachineConfig.Name+"\n")
		}
	}
	slices.Sort(lines)
	require.Len(t, slices.Compact(slices.Clone(lines)), len(lines))
	golden(t, "names.txt", []byte(strings.Join(lines, "")))
}

func TestRenderedObject(t *testing.T) {
	t.Parallel()
	got, err := yaml.Marshal(render(t, everything()...).MachineConfig)
	require.NoError(t, err)
	golden(t, "everything.yaml", got)
}

func TestSameContentHasTheSameName(t *testing.T) {
	t.Parallel()
	base := render(t, everything()...)
	tests := map[string]func([]*mcfgv1.MachineConfig) []*mcfgv1.MachineConfig{
		"in another order": func(configs []*mcfgv1.MachineConfig) []*mcfgv1.MachineConfig {
			slices.Reverse(configs)
			return configs
		},
		"with other white space": func(configs []*mcfgv1.MachineConfig) []*mcfgv1.MachineConfig {
			for _, mc := range configs {
				var b bytes.Buffer
				_ = json.Indent(&b, mc.Spec.Config.Raw, "", "\t")
				mc.Spec.Config.Raw = b.Bytes()
			}
			return configs
		},
		"with another order of keys": func(configs []*mcfgv1.MachineConfig) []*mcfgv1.MachineConfig {
			for _, mc := range configs {
				var v map[string]any
				_ = json.Unmarshal(mc.Spec.Config.Raw, &v)
				raw, err := json.Marshal(v)
				require.NoError(t, err)
				mc.Spec.Config.Raw = raw
			}
			return configs
		},
		"with another specification": func(configs []*mcfgv1.MachineConfig) []*mcfgv1.MachineConfig {
			for _, mc := range configs {
				mc.Spec.Config.Raw = bytes.Replace(mc.Spec.Config.Raw, []byte("3.4.0"), []byte("3.5.0"), 1)
			}
			return configs
		},
		"with other names in the same order": func(configs []*mcfgv1.MachineConfig) []*mcfgv1.MachineConfig {
			for _, mc := range configs {
				mc.Name = "x" + mc.Name
			}
			return configs
		},
		"with labels and other annotations": func(configs []*mcfgv1.MachineConfig) []*mcfgv1.MachineConfig {
			for _, mc := range configs {
				annotated("example.com/a", "b")(mc)
				role("worker")(mc)
			}
			return configs
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := render(t, change(everything())...)
			require.Equal(t, base.MachineConfig, r.MachineConfig)
			require.Equal(t, string(base.MachineConfig.Spec.Config.Raw), string(r.MachineConfig.Spec.Config.Raw))
		})
	}
	t.Run("of another version of the controller", func(t *testing.T) {
		t.Parallel()
		r, err := Render(Options{Pool: "worker", Images: streamImages, ControllerVersion: "9", ReleaseVersion: "5.0"}, everything())
		require.NoError(t, err)
		require.Equal(t, base.MachineConfig.Name, r.MachineConfig.Name)
		require.Equal(t, "9", r.MachineConfig.Annotations[mcfgv1.AnnotationGeneratedByControllerVersion])
	})
}

func TestOtherContentHasAnotherName(t *testing.T) {
	t.Parallel()
	base := render(t, everything()...).MachineConfig.Name
	tests := map[string]func([]*mcfgv1.MachineConfig, *Options){
		"another pool":             func(_ []*mcfgv1.MachineConfig, o *Options) { o.Pool = "infra" },
		"another OS image":         func(_ []*mcfgv1.MachineConfig, o *Options) { o.Images.OSImage += "0" },
		"another extensions image": func(_ []*mcfgv1.MachineConfig, o *Options) { o.Images.ExtensionsImage += "0" },
		"a kernel argument more": func(c []*mcfgv1.MachineConfig, _ *Options) {
			c[0].Spec.KernelArguments = append(c[0].Spec.KernelArguments, "quiet")
		},
		"no FIPS":               func(c []*mcfgv1.MachineConfig, _ *Options) { c[0].Spec.FIPS = false },
		"another kernel":        func(c []*mcfgv1.MachineConfig, _ *Options) { c[0].Spec.KernelType = "" },
		"an extension more":     func(c []*mcfgv1.MachineConfig, _ *Options) { c[1].Spec.Extensions = []string{"ipsec"} },
		"another content":       func(c []*mcfgv1.MachineConfig, _ *Options) { c[1].Spec.Config.Raw = []byte(files(file("/etc/a", "c"))) },
		"no longer node state":  func(c []*mcfgv1.MachineConfig, _ *Options) { c[2].Annotations = nil },
		"more of it node state": func(c []*mcfgv1.MachineConfig, _ *Options) { nodeOnly()(c[1]) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			configs := everything()
			opts := Options{Pool: "worker", Images: streamImages}
			change(configs, &opts)
			r, err := Render(opts, configs)
			require.NoError(t, err)
			require.NotEqual(t, base, r.MachineConfig.Name)
		})
	}
}

// requireReadsAsMeant parses what was rendered, and expects what Render said it means. Places in
// warnings are other ones.
func requireReadsAsMeant(t *testing.T, r *Rendered) {
	t.Helper()
	cfg, err := Parse(r.MachineConfig)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(r.Config, cfg, cmpopts.IgnoreFields(Config{}, "Warnings")))
}

func TestRenderedIsReadAsItWasMeant(t *testing.T) {
	t.Parallel()
	r := render(t, everything()...)
	requireReadsAsMeant(t, r)
	again := render(t, r.MachineConfig)
	require.Equal(t, r.MachineConfig, again.MachineConfig, "rendering what is rendered changes nothing")
}

func TestEncodingIsThatOfEncodingJSON(t *testing.T) {
	t.Parallel()
	sources := []string{
		"", "data:,", "data:,a&b", "data:,a<b>c", `data:text/plain;a="b",c`, "https://x/?a=1&b=2", `"source":"`, "data:;base64,YQ==", "data:text/a&b;base64,YQ==",
		"data:," + strings.Repeat("x", 1000), "data:,ä", "\u2028",
	}
	cfg := empty()
	for i, source := range sources {
		cfg.Storage.Files = append(cfg.Storage.Files, types.File{
			Node: types.Node{Path: fmt.Sprintf(`/etc/"source":"%d`, i)},
			FileEmbedded1: types.FileEmbedded1{
				Append:   []types.Resource{{Source: &source}, {}, {Source: &sources[(i+1)%len(sources)]}},
				Contents: types.Resource{Source: &source},
			},
		})
		cfg.Storage.Luks = append(cfg.Storage.Luks, types.Luks{Name: source, KeyFile: types.Resource{Source: &source}})
		cfg.Ignition.Security.TLS.CertificateAuthorities = append(cfg.Ignition.Security.TLS.CertificateAuthorities, types.Resource{Source: &source})
	}
	cfg.Ignition.Config = types.IgnitionConfig{Merge: []types.Resource{{Source: &sources[0]}}, Replace: types.Resource{Source: &sources[1]}}
	want, err := json.Marshal(cfg)
	require.NoError(t, err)
	got, err := encodeIgnition(cfg)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestRenderCollectsWarnings(t *testing.T) {
	t.Parallel()
	r := render(t, machineConfig("60-b", files(`{"path":"/etc/a","colour":"red"}`)), machineConfig("50-a", files(`{"path":"/etc/b","colour":"red"}`)))
	require.Len(t, r.Config.Warnings, 2)
	require.Contains(t, r.Config.Warnings[0], `MachineConfig "50-a": storage.files[0].colour (file "/etc/b")`)
}

func TestLargePoolsRender(t *testing.T) {
	t.Parallel()
	pool := largePool(20, 200, 1000)
	slices.Reverse(pool)
	r := render(t, pool...)
	require.Len(t, r.Sources, 20)
	require.True(t, slices.IsSorted(r.Sources))
	requireReadsAsMeant(t, r)
}

func TestConfigurationsTogetherAreBounded(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 930_000)
	var all []*mcfgv1.MachineConfig
	for i := range 40 {
		if i == 7 {
			text += "x"
		}
		all = append(all, machineConfig(fmt.Sprintf("50-%02d", i), `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,`+text+`"}}]}}`))
		text = text[:930_000]
	}
	_, err := Render(Options{Pool: "worker"}, all)
	require.EqualError(t, err, `MachineConfig "50-07": spec.config: the 40 MachineConfigs of the pool have 37204121 bytes together, and this one has most of `+
		`them, 930104; the limit is 8388608: bring large files with the Containerfile`)
	_, err = Render(Options{Pool: "worker"}, all[:8])
	require.NoError(t, err)
}
