package machineconfigs

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func TestParseVersions(t *testing.T) {
	t.Parallel()
	spec3 := func(version string) string {
		return `{"ignition":{"version":"` + version + `"},"storage":{"files":[` + file("/etc/a", "x") + `]}}`
	}
	spec2 := func(version string) string {
		return `{"ignition":{"version":"` + version + `"},"storage":{"files":[{"filesystem":"root","path":"/etc/a","mode":420,"contents":{"source":"data:,x"}}]}}`
	}
	tests := map[string]string{
		"3.0.0": spec3("3.0.0"),
		"3.1.0": spec3("3.1.0"),
		"3.2.0": spec3("3.2.0"),
		"3.3.0": spec3("3.3.0"),
		"3.4.0": spec3("3.4.0"),
		"3.5.0": spec3("3.5.0"),
		"2.2.0": spec2("2.2.0"),
		"2.3.0": spec2("2.3.0"),
		"2.4.0": spec2("2.4.0"),
	}
	for version, config := range tests {
		t.Run("reads "+version, func(t *testing.T) {
			t.Parallel()
			cfg, err := Parse(machineConfig("50-a", config))
			require.NoError(t, err)
			require.Equal(t, "50-a", cfg.Name)
			require.Equal(t, "3.5.0", cfg.Ignition.Ignition.Version)
			require.Len(t, cfg.Ignition.Storage.Files, 1)
			got := cfg.Ignition.Storage.Files[0]
			require.Equal(t, "/etc/a", got.Path)
			require.Equal(t, 0o644, *got.Mode)
			require.Equal(t, "data:,x", *got.Contents.Source)
			require.Equal(t, mcfgv1.KernelTypeDefault, cfg.KernelType)
		})
	}
}

func TestParseEmptyConfig(t *testing.T) {
	t.Parallel()
	tests := map[string][]byte{
		"nothing":         nil,
		"no bytes":        {},
		"null":            []byte("null"),
		"an empty object": []byte(" { \n } "),
		"only a version":  []byte(`{"ignition":{"version":"3.5.0"}}`),
	}
	for name, raw := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mc := machineConfig("50-a", "")
			mc.Spec.Config.Raw = raw
			cfg, err := Parse(mc)
			require.NoError(t, err)
			require.Equal(t, empty(), cfg.Ignition)
			require.True(t, cfg.NodeOnly.IsEmpty())
		})
	}
}

// parsedObject stands for a type of a program that makes MachineConfigs.
type parsedObject struct{ *mcfgv1.MachineConfig }

func (parsedObject) MarshalJSON() ([]byte, error) { return []byte(files(file("/etc/a", "x"))), nil }

func TestParseReadsGoObjects(t *testing.T) {
	t.Parallel()
	mc := machineConfig("50-a", "")
	mc.Spec.Config = runtime.RawExtension{Object: parsedObject{&mcfgv1.MachineConfig{}}}
	cfg, err := Parse(mc)
	require.NoError(t, err)
	require.Len(t, cfg.Ignition.Storage.Files, 1)
}

func TestParseSpec2(t *testing.T) {
	t.Parallel()
	config := func(version, sections string) string {
		return `{"ignition":{"version":"` + version + `"},` + sections + `}`
	}
	t.Run("files overwrite, as they did", func(t *testing.T) {
		t.Parallel()
		cfg, err := Parse(machineConfig("50-a", config("2.2.0", `"storage":{"files":[{"filesystem":"root","path":"/etc/a","contents":{"source":"data:,a"}}]}`)))
		require.NoError(t, err)
		require.True(t, *cfg.Ignition.Storage.Files[0].Overwrite)
	})
	t.Run("what is appended stays appended", func(t *testing.T) {
		t.Parallel()
		cfg, err := Parse(machineConfig("50-a", config("2.2.0", `"storage":{"files":[{"filesystem":"root","path":"/etc/a","append":true,"contents":{"source":"data:,a"}}]}`)))
		require.NoError(t, err)
		require.Equal(t, "data:,a", *cfg.Ignition.Storage.Files[0].Append[0].Source)
		require.Nil(t, cfg.Ignition.Storage.Files[0].Contents.Source)
	})
	t.Run("the last of two files with the same path wins, as it did", func(t *testing.T) {
		t.Parallel()
		cfg, err := Parse(machineConfig("50-a", config("2.2.0", `"storage":{"files":[
			{"filesystem":"root","path":"/etc/a","contents":{"source":"data:,first"}},
			{"filesystem":"root","path":"/etc/a","contents":{"source":"data:,last"}}]}`)))
		require.NoError(t, err)
		require.Len(t, cfg.Ignition.Storage.Files, 1)
		require.Equal(t, "data:,last", *cfg.Ignition.Storage.Files[0].Contents.Source)
	})
	t.Run("units and users are translated", func(t *testing.T) {
		t.Parallel()
		cfg, err := Parse(machineConfig("50-a", config("2.4.0", `"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target"}]},
			"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}`)))
		require.NoError(t, err)
		require.True(t, *cfg.Ignition.Systemd.Units[0].Enabled)
		require.EqualValues(t, "ssh-ed25519 AAAA", cfg.Ignition.Passwd.Users[0].SSHAuthorizedKeys[0])
	})
}

func TestParseFields(t *testing.T) {
	t.Parallel()
	cfg, err := Parse(machineConfig("50-a", ignition(`"kernelArguments":{"shouldExist":["a","both"],"shouldNotExist":["quiet"]}`), spec(func(s *mcfgv1.MachineConfigSpec) {
		s.KernelArguments = []string{"b", "both", "b"}
		s.Extensions = []string{"usbguard", "ipsec", "usbguard"}
		s.KernelType = mcfgv1.KernelTypeRealtime
		s.FIPS = true
		s.OSImageURL = "quay.io/os/image@sha256:00"
		s.BaseOSExtensionsContainerImage = "quay.io/os/extensions:1"
	})))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "both", "b"}, cfg.KernelArguments, "Ignition's first, and none of them twice because of it")
	require.Equal(t, []string{"quiet"}, cfg.RemoveKernelArguments)
	require.Equal(t, []string{"ipsec", "usbguard"}, cfg.Extensions)
	require.Equal(t, mcfgv1.KernelTypeRealtime, cfg.KernelType)
	require.True(t, cfg.FIPS)
	require.Equal(t, "quay.io/os/image@sha256:00", cfg.OSImageURL)
	require.Equal(t, "quay.io/os/extensions:1", cfg.ExtensionsImage)
}

// TestParseTakesArgumentsApart has entries with several words, and words with blanks.
func TestParseTakesArgumentsApart(t *testing.T) {
	t.Parallel()
	cfg, err := Parse(machineConfig("50-a", ignition(`"kernelArguments":{"shouldExist":["a=1 b","b"],"shouldNotExist":["q x=\"y z\""]}`), spec(func(s *mcfgv1.MachineConfigSpec) {
		s.KernelArguments = []string{"hugepagesz=1G hugepages=16", `hugepagesz=2M  hugepages=16 dyndbg="file drivers/usb/* +p"`}
	})))
	require.NoError(t, err)
	require.Equal(t, []string{"a=1", "b", "hugepagesz=1G", "hugepages=16", "hugepagesz=2M", "hugepages=16", `dyndbg="file drivers/usb/* +p"`}, cfg.KernelArguments)
	require.Equal(t, []string{"q", `x="y z"`}, cfg.RemoveKernelArguments)
}

func TestParseKeepsHostSettings(t *testing.T) {
	t.Parallel()
	cfg, err := Parse(machineConfig("50-a", `{"ignition":{"version":"3.4.0",
		"proxy":{"httpProxy":"http://proxy:3128"},"timeouts":{"httpTotal":10},
		"security":{"tls":{"certificateAuthorities":[{"source":"data:,ca"},{"source":"http://x/ca"}]}}},
		"storage":{
			"disks":[{"device":"/dev/sda","partitions":[{"number":1,"label":"data"}]}],
			"filesystems":[{"device":"/dev/disk/by-partlabel/data","format":"xfs","path":"/var/data"}],
			"luks":[{"name":"data","device":"/dev/sdb","keyFile":{"source":"data:,key"},"clevis":{"tpm2":true}}],
			"raid":[{"name":"r","level":"raid1","devices":["/dev/sdc","/dev/sdd"]}]}}`))
	require.NoError(t, err)
	require.Equal(t, "http://proxy:3128", *cfg.Ignition.Ignition.Proxy.HTTPProxy)
	require.Len(t, cfg.Ignition.Ignition.Security.TLS.CertificateAuthorities, 2)
	require.Len(t, cfg.Ignition.Storage.Disks, 1)
	require.Len(t, cfg.Ignition.Storage.Filesystems, 1)
	require.Equal(t, "data:,key", *cfg.Ignition.Storage.Luks[0].KeyFile.Source)
	require.True(t, *cfg.Ignition.Storage.Luks[0].Clevis.Tpm2)
	require.Len(t, cfg.Ignition.Storage.Raid, 1)
}

func TestParseKeepsRemoteSources(t *testing.T) {
	t.Parallel()
	hash := "sha256-" + strings.Repeat("0", 64)
	cfg, err := Parse(machineConfig("50-a", files(`{"path":"/etc/a","contents":{"source":"https://x/a","verification":{"hash":"`+hash+`"},"httpHeaders":[{"name":"X-A","value":"b"}]}}`)))
	require.NoError(t, err)
	got := cfg.Ignition.Storage.Files[0].Contents
	require.Equal(t, "https://x/a", *got.Source)
	require.Equal(t, hash, *got.Verification.Hash)
	require.Len(t, got.HTTPHeaders, 1)
}

func TestParseWarns(t *testing.T) {
	t.Parallel()
	cfg, err := Parse(machineConfig("50-a", "{\"ignition\":{\"version\":\"3.4.0\"},\n\"storage\":{\"files\":[{\"path\":\"/etc/a\",\"content\":{},\"mode\":1204}]}}"))
	require.NoError(t, err)
	require.Equal(t, []string{
		`MachineConfig "50-a": storage.files[0].content (file "/etc/a"), line 2, column 48: unused key content`,
		`MachineConfig "50-a": storage.files[0].mode (file "/etc/a"), line 2, column 58: setuid/setgid/sticky bits are not supported or functional in spec versions older than 3.6.0: ` +
			`Ignition leaves them out up to specification 3.5; if a decimal mode was meant to be octal, write 420 for 0644`,
	}, cfg.Warnings)
}

func TestParseWarnsOfWhatHostsCannotRead(t *testing.T) {
	t.Parallel()
	cfg, err := Parse(machineConfig("50-a", files(`{"path":"/etc/containers/policy.json","mode":384}`)))
	require.NoError(t, err)
	require.Len(t, cfg.Warnings, 1)
	require.Contains(t, cfg.Warnings[0], `MachineConfig "50-a": file "/etc/containers/policy.json" has mode 0600`)
}

func TestParseReportsAllMistakes(t *testing.T) {
	t.Parallel()
	var list []string
	for range 30 {
		list = append(list, `{"path":"relative"}`)
	}
	_, err := Parse(machineConfig("50-a", files(strings.Join(list, ",")), spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "fast" })))
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, maxErrors+1)
	require.Contains(t, lines[0], `kernel type "fast"`)
	require.Contains(t, lines[maxErrors], "more mistakes")
	var first *Error
	require.ErrorAs(t, err, &first)
	require.Equal(t, mcfgv1.ReasonInvalidMachineConfig, first.Reason)
	require.Equal(t, "50-a", first.MachineConfig)
	require.Equal(t, "spec.kernelType", first.Path)
}

func TestParseWithoutMachineConfig(t *testing.T) {
	t.Parallel()
	_, err := Parse(nil)
	require.ErrorIs(t, err, errNoMachineConfig)
}

func TestGuardCatchesPanics(t *testing.T) {
	t.Parallel()
	err := guard(func() error { panic("index out of range") })
	require.EqualError(t, err, "reading the configuration: the library that reads it gave up: index out of range")
	other := errors.New("other")
	require.ErrorIs(t, guard(func() error { return other }), other)
}
