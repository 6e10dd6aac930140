package machineconfigs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs/document"
)

// badConfigs are configurations that are refused, and the message without its `MachineConfig
// "50-bad": `.
var badConfigs = map[string]struct{ config, want string }{
	"an unknown specification": {
		"{\n  \"ignition\": {\"version\": \"3.6.0\"}\n}",
		`ignition.version, line 2, column 27: specification "3.6.0" of Ignition is not understood; understood are 3.0.0 to 3.5.0, and 2.2.0 to 2.4.0`,
	},
	"an experimental specification": {
		`{"ignition":{"version":"3.6.0-experimental"}}`,
		`ignition.version, line 1, column 24: specification "3.6.0-experimental" of Ignition is not understood; understood are 3.0.0 to 3.5.0, and 2.2.0 to 2.4.0`,
	},
	"a version that is none": {
		`{"ignition":{"version":"latest"}}`,
		`ignition.version, line 1, column 24: specification "latest" of Ignition is not understood; understood are 3.0.0 to 3.5.0, and 2.2.0 to 2.4.0`,
	},
	"a version that is a number": {
		`{"ignition":{"version":3.5}}`,
		`ignition.version, line 1, column 26: a number where a string belongs`,
	},
	"no version": {
		`{"storage":{}}`,
		`ignition.version, line 1, column 1: the version is missing: add version: 3.5.0; understood are 3.0.0 to 3.5.0, and 2.2.0 to 2.4.0`,
	},
	"specification 1": {
		`{"ignitionVersion":1}`,
		`ignitionVersion, line 1, column 20: specification 1 of Ignition is not understood: write the configuration anew, for specification 3.5.0`,
	},
	"specification 2.0": {
		`{"ignition":{"version":"2.0.0"}}`,
		`ignition.version, line 1, column 24: specification 2.0.0 of Ignition is not understood: write the configuration for specification 3.5.0`,
	},
	"specification 2.1": {
		`{"ignition":{"version":"2.1.0"}}`,
		`ignition.version, line 1, column 24: specification 2.1.0 of Ignition is not understood: write the configuration for specification 3.5.0`,
	},
	"specification 2 with networkd": {
		`{"ignition":{"version":"2.2.0"},"networkd":{"units":[{"name":"a.network"}]}}`,
		`translating from Ignition specification 2: config includes deprecated networkd section - use Files instead; write it for specification 3.5.0`,
	},
	"specification 2 with another filesystem": {
		`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/a","filesystem":"data"}]}}`,
		`translating from Ignition specification 2: "/a" is on the filesystem "data", and only "root" can be translated; write it for specification 3.5.0`,
	},
	"specification 2 with a wrong type": {
		`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/a","filesystem":"root","mode":"0644"}]}}`,
		`storage.files[0].mode (file "/a"), line 1, column 98: a string where a whole number belongs; JSON has no octal numbers: 0644 is 420`,
	},
	"specification 2 with a relative path": {
		"{\"ignition\":{\"version\":\"2.2.0\"},\n\"storage\":{\"files\":[{\"contents\":{\"source\":\"data:,a\"},\"path\":\"a\",\"filesystem\":\"root\"}]}}",
		`storage.files[0].path (file "a"), line 2, column 61: path not absolute: start the path with a slash`,
	},
	"specification 2 with a broken data URL": {
		`{"ignition":{"version":"2.4.0"},"storage":{"files":[{"path":"/a","filesystem":"root","contents":{"source":"data:,%zz"}}]}}`,
		`storage.files[0].contents.source (file "/a"), line 1, column 107: reading the data URL: no hexadecimal digits after % at character 1 of the data; write % as %25`,
	},
	"what is not JSON, in a content that nothing reads": {
		"{\"ignition\":{\"version\":\"3.4.0\"},\"other\":{\"source\":\"data:;base64,YQ\x00\"}}",
		`line 1, column 67: reading JSON: invalid character '\x00' in string literal`,
	},
	"what is not JSON": {
		"{\n\"ignition\":{\"version\":\"3.4.0\"},\n x}",
		`line 3, column 2: reading JSON: invalid character 'x' looking for beginning of object key string`,
	},
	"half of a document": {
		`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"contents":{"source":"data:,x`,
		`line 1, column 82: reading JSON: unexpected end of JSON input`,
	},
	"a byte order mark": {
		"\ufeff" + `{"ignition":{"version":"3.4.0"}}`,
		`line 1, column 1: reading JSON: invalid character 'ï' looking for beginning of value`,
	},
	"a list": {
		`[]`,
		`line 1, column 1: an array where an object belongs`,
	},
	"nesting without end": {
		strings.Repeat("[", 20000),
		`line 1, column 10001: reading JSON: invalid character '[' exceeded max depth`,
	},
	"another config to merge": {
		`{"ignition":{"version":"3.4.0","config":{"merge":[{"source":"http://x/y"}]}}}`,
		`ignition.config.merge, line 1, column 50: a MachineConfig has to say everything itself, so that the same MachineConfigs always mean the same image: copy what is there into this MachineConfig, or into one of its own`,
	},
	"another config instead": {
		`{"ignition":{"version":"3.4.0","config":{"replace":{"source":"data:,%7B%7D"}}}}`,
		`ignition.config.replace, line 1, column 52: a MachineConfig has to say everything itself, so that the same MachineConfigs always mean the same image: copy what is there into this MachineConfig, or into one of its own`,
	},
	"a path with dots": {
		files(file("/etc/../root/a", "x")),
		`storage.files[0].path (file "/etc/../root/a"), line 1, column 61: path is not fully simplified: write the path without "..", ".", and doubled or closing slashes`,
	},
	"a path that starts with dots": {
		files(file("../etc/a", "x")),
		`storage.files[0].path (file "../etc/a"), line 1, column 61: path not absolute: start the path with a slash`,
	},
	"a path with a line break": {
		files(file(`/etc/a\nb`, "x")),
		`storage.files[0].path (file "/etc/a\nb"), line 1, column 61: the path has a line break or another control character`,
	},
	"a path that is too long": {
		files(file("/"+strings.Repeat("a/", 3000)+"a", "x")),
		`storage.files[0].path (file "/` + strings.Repeat("a/", 3000) + `a"), line 1, column 61: the path is longer than 4095 bytes`,
	},
	"a name that is too long": {
		files(file("/"+strings.Repeat("a", 256), "x")),
		`storage.files[0].path (file "/` + strings.Repeat("a", 256) + `"), line 1, column 61: the path has a part that is longer than 255 bytes`,
	},
	"the root as a file": {
		files(file("/", "x")),
		`storage.files[0].path (file "/"), line 1, column 61: / is a directory`,
	},
	"a path twice": {
		files(file("/etc/a", "x") + "," + file("/etc/a", "y")),
		`storage.files[1] (file "/etc/a"), line 1, column 114: duplicate entry defined: it is there a second time in the same MachineConfig: remove one of the two`,
	},
	"a path as file and directory": {
		ignition(`"storage":{"directories":[{"path":"/etc/a"}],"files":[` + file("/etc/a", "y") + `]}`),
		`storage.files[0] (file "/etc/a"), line 1, column 87: duplicate entry defined: it is there a second time in the same MachineConfig: remove one of the two`,
	},
	"a file below a link": {
		ignition(`"storage":{"links":[{"path":"/etc/l","target":"/etc/m"}],"files":[` + file("/etc/l/x", "x") + `]}`),
		`storage.files[0] (file "/etc/l/x"), line 1, column 99: file path includes link in config: write the path that the link leads to`,
	},
	"a file in the place of a unit": {
		ignition(`"systemd":{"units":[{"name":"a.service","contents":"[Unit]"}]},"storage":{"files":[` + file("/etc/systemd/system/a.service", "x") + `]}`),
		`storage.files[0].path (file "/etc/systemd/system/a.service"), line 1, column 124: path conflicts with systemd unit or dropin: say it either as a unit or as a file`,
	},
	"a mode that is too large": {
		files(`{"path":"/etc/a","mode":4096}`),
		`storage.files[0].mode (file "/etc/a"), line 1, column 77: illegal file mode: a mode is between 0 and 4095 (07777); YAML reads 0644 as octal, JSON needs 420 for it`,
	},
	"a mode below zero": {
		files(`{"path":"/etc/a","mode":-1}`),
		`storage.files[0].mode (file "/etc/a"), line 1, column 77: illegal file mode: a mode is between 0 and 4095 (07777); YAML reads 0644 as octal, JSON needs 420 for it`,
	},
	"a directory's mode that is too large": {
		ignition(`"storage":{"directories":[{"path":"/etc/a","mode":65535}]}`),
		`storage.directories[0].mode (directory "/etc/a"), line 1, column 83: illegal file mode: a mode is between 0 and 4095 (07777); YAML reads 0644 as octal, JSON needs 420 for it`,
	},
	"a mode that is a string": {
		files(`{"path":"/etc/a","mode":"0644"}`),
		`storage.files[0].mode (file "/etc/a"), line 1, column 82: a string where a whole number belongs; JSON has no octal numbers: 0644 is 420`,
	},
	"an owner below zero": {
		files(`{"path":"/etc/a","user":{"id":-1}}`),
		`storage.files[0].user (file "/etc/a"), line 1, column 77: -1 is no user or group ID`,
	},
	"a group with a colon": {
		files(`{"path":"/etc/a","group":{"name":"a:b"}}`),
		`storage.files[0].group (file "/etc/a"), line 1, column 78: "a:b" is no name of a user or group`,
	},
	"an owner by name and by number": {
		files(`{"path":"/etc/a","user":{"id":1,"name":"core"}}`),
		`storage.files[0].user (file "/etc/a"), line 1, column 77: cannot set both id and name: remove one of the two`,
	},
	"a data URL without a comma": {
		files(`{"path":"/etc/a","contents":{"source":"data:text/plain"}}`),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 91: incomplete media type`,
	},
	"a data URL with broken base64": {
		files(`{"path":"/etc/a","contents":{"source":"data:;base64,xx*x"}}`),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 91: reading the data URL: no base64 at character 3 of the data`,
	},
	"a data URL with base64 cut short": {
		files(`{"path":"/etc/a","append":[{"source":"data:,a"},{"source":"data:;base64,YWJj\nYQ"}]}`),
		`storage.files[0].append[1].source (file "/etc/a"), line 1, column 111: unable to parse url: write a data URL, or http or https with verification.hash`,
	},
	"a data URL with a bad escape": {
		files(file("/etc/a", "100%")),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 102: reading the data URL: incomplete %xx at character 4 of the data`,
	},
	"a data URL with a space": {
		files(file("/etc/a", "a b")),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 102: reading the data URL: character ' ' at 2 of the data; write it as %20, or use base64`,
	},
	"compressed content that is none": {
		files(`{"path":"/etc/a","contents":{"source":"data:,plain%20text,%20not%20gzip","compression":"gzip"}}`),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 91: decompressing: gzip: invalid header; set compression to "" if the content is not compressed`,
	},
	"another compression": {
		files(`{"path":"/etc/a","contents":{"source":"data:,x","compression":"xz"}}`),
		`storage.files[0].contents.compression (file "/etc/a"), line 1, column 115: invalid compression method: use gzip, or leave compression out`,
	},
	"a wrong hash": {
		files(`{"path":"/etc/a","contents":{"source":"data:,x","verification":{"hash":"sha256-` + strings.Repeat("0", 64) + `"}}}`),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 91: the content has the hash 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881, but verification.hash is ` + strings.Repeat("0", 64) + `; correct the one that is wrong`,
	},
	"a hash of another kind": {
		files(`{"path":"/etc/a","contents":{"source":"data:,x","verification":{"hash":"md5-00"}}}`),
		`storage.files[0].contents.verification.hash (file "/etc/a"), line 1, column 124: unrecognized hash function: write sha256-<sum> or sha512-<sum>`,
	},
	"a hash without digits": {
		files(`{"path":"/etc/a","contents":{"source":"data:,x","verification":{"hash":"sha256-` + strings.Repeat("z", 64) + `"}}}`),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 91: verification.hash "sha256-` + strings.Repeat("z", 64) + `" is not sha256- and 64 hexadecimal digits`,
	},
	"a remote source without hash": {
		files(`{"path":"/etc/a","contents":{"source":"https://x/y"}}`),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 91: the content behind this URL could be another one tomorrow, and with it the image: add verification.hash (sha256-... or sha512-...)`,
	},
	"a remote source without a host": {
		files(`{"path":"/etc/a","contents":{"source":"https:/x/y"}}`),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 91: the URL has no host`,
	},
	"a source in S3": {
		files(`{"path":"/etc/a","contents":{"source":"s3://x/y"}}`),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 91: sources with the scheme "s3" are not fetched; use http or https with verification.hash, or put the content in as a data URL`,
	},
	"a source by TFTP": {
		files(`{"path":"/etc/a","contents":{"source":"tftp://x/y","verification":{"hash":"sha256-` + strings.Repeat("0", 64) + `"}}}`),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 91: sources with the scheme "tftp" are not fetched; use http or https with verification.hash, or put the content in as a data URL`,
	},
	"a source in a file": {
		files(`{"path":"/etc/a","contents":{"source":"file:///etc/shadow"}}`),
		`storage.files[0].contents.source (file "/etc/a"), line 1, column 91: invalid url scheme: use a data URL, or http or https with verification.hash`,
	},
	"a key file that is broken": {
		ignition(`"storage":{"luks":[{"name":"data","device":"/dev/sdb","keyFile":{"source":"data:;base64,?"}}]}`),
		`storage.luks[0].keyFile (encrypted device "data"), line 1, column 97: reading the data URL: no base64 at character 1 of the data`,
	},
	"overwriting with nothing": {
		files(`{"path":"/etc/a","overwrite":true}`),
		`storage.files[0].overwrite (file "/etc/a"), line 1, column 82: overwrite must be false if source is unspecified: add contents.source, or remove overwrite`,
	},
	"a link without target": {
		ignition(`"storage":{"links":[{"path":"/etc/a"}]}`),
		`storage.links[0].target (link "/etc/a"), line 1, column 53: link target is required`,
	},
	"a hard link that climbs": {
		ignition(`"storage":{"links":[{"path":"/etc/a","hard":true,"target":"../../etc/shadow"}]}`),
		`storage.links[0].target (link "/etc/a"), line 1, column 91: a hard link needs an absolute path without ".." as target, not "../../etc/shadow"`,
	},
	"a target with a zero byte": {
		ignition(`"storage":{"links":[{"path":"/etc/a","target":"/b\u0000"}]}`),
		`storage.links[0].target (link "/etc/a"), line 1, column 79: "/b\x00" is no target of a link`,
	},
	"the root as a link": {
		ignition(`"storage":{"links":[{"path":"/","target":"/b"}]}`),
		`storage.links[0].path (link "/"), line 1, column 61: / is a directory`,
	},
	"a unit without type": {
		ignition(`"systemd":{"units":[{"name":"foo"}]}`),
		`systemd.units[0].name (unit "foo"), line 1, column 61: invalid systemd unit extension: a unit's name ends in .service, .socket, .mount, .timer or another of systemd's types`,
	},
	"a unit in another folder": {
		ignition(`"systemd":{"units":[{"name":"../../passwd.service"}]}`),
		`systemd.units[0].name (unit "../../passwd.service"), line 1, column 61: "../../passwd.service" is no name of a unit: use letters, digits, and : - _ . \ @ in it`,
	},
	"a unit that is only a type": {
		ignition(`"systemd":{"units":[{"name":".service"}]}`),
		`systemd.units[0].name (unit ".service"), line 1, column 61: ".service" is no name of a unit: use letters, digits, and : - _ . \ @ in it`,
	},
	"a unit with a space": {
		ignition(`"systemd":{"units":[{"name":"a b.service"}]}`),
		`systemd.units[0].name (unit "a b.service"), line 1, column 61: "a b.service" is no name of a unit: use letters, digits, and : - _ . \ @ in it`,
	},
	"an instance of nothing": {
		ignition(`"systemd":{"units":[{"name":"@a.service"}]}`),
		`systemd.units[0].name (unit "@a.service"), line 1, column 61: "@a.service" is no name of a unit: use letters, digits, and : - _ . \ @ in it`,
	},
	"a unit with a long name": {
		ignition(`"systemd":{"units":[{"name":"` + strings.Repeat("a", 248) + `.service"}]}`),
		`systemd.units[0].name (unit "` + strings.Repeat("a", 248) + `.service"), line 1, column 61: the name is longer than 255 bytes`,
	},
	"a unit twice": {
		ignition(`"systemd":{"units":[{"name":"a.service"},{"name":"a.service"}]}`),
		`systemd.units[1] (unit "a.service"), line 1, column 74: duplicate entry defined: it is there a second time in the same MachineConfig: remove one of the two`,
	},
	"a unit that systemd cannot read": {
		ignition(`"systemd":{"units":[{"name":"a.service","contents":"[Service\nx"}]}`),
		`systemd.units[0].contents (unit "a.service"), line 1, column 84: invalid unit content: unable to find end of section`,
	},
	"a drop-in without .conf": {
		ignition(`"systemd":{"units":[{"name":"a.service","dropins":[{"name":"x"}]}]}`),
		`systemd.units[0].dropins[0].name (drop-in "x" of unit "a.service"), line 1, column 92: invalid systemd drop-in extension: a drop-in's name ends in .conf`,
	},
	"a drop-in in another folder": {
		ignition(`"systemd":{"units":[{"name":"a.service","dropins":[{"name":"../x.conf"}]}]}`),
		`systemd.units[0].dropins[0].name (drop-in "../x.conf" of unit "a.service"), line 1, column 92: "../x.conf" is no name of a drop-in: it is the name of a file, and ends in .conf`,
	},
	"a user with a colon": {
		ignition(`"passwd":{"users":[{"name":"core:x"}]}`),
		`passwd.users[0].name (user "core:x"), line 1, column 60: "core:x" is no name of a user or group`,
	},
	"a user without a name": {
		ignition(`"passwd":{"users":[{"name":""}]}`),
		`passwd.users[0].name (user ""), line 1, column 60: "" is no name of a user or group`,
	},
	"a user with a second line": {
		ignition(`"passwd":{"users":[{"name":"core","gecos":"x\nroot2:x:0:0"}]}`),
		`passwd.users[0].gecos (user "core"), line 1, column 75: a colon or control character would break /etc/passwd`,
	},
	"a home that climbs": {
		ignition(`"passwd":{"users":[{"name":"core","homeDir":"/home/../../root"}]}`),
		`passwd.users[0].homeDir (user "core"), line 1, column 77: "/home/../../root" is no absolute path without ".."`,
	},
	"a group that is too high": {
		ignition(`"passwd":{"groups":[{"name":"g","gid":4294967295}]}`),
		`passwd.groups[0].gid (group "g"), line 1, column 71: 4294967295 is no user or group ID`,
	},
	"a key that is a number": {
		ignition(`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":[1]}]}`),
		`passwd.users[0].sshAuthorizedKeys[0] (user "core"), line 1, column 88: a number where a string belongs`,
	},
	"a kernel argument that is empty": {
		ignition(`"kernelArguments":{"shouldExist":["a",""]}`),
		`kernelArguments.shouldExist[1], line 1, column 71: the kernel argument is empty: remove it`,
	},
	"a kernel argument asked for and forbidden": {
		ignition(`"kernelArguments":{"shouldExist":["a"],"shouldNotExist":["a"]}`),
		`kernelArguments.shouldNotExist[0], line 1, column 90: duplicate entry defined: it is there a second time in the same MachineConfig: remove one of the two`,
	},
}

func TestParseRefusesConfigs(t *testing.T) {
	t.Parallel()
	for name, test := range badConfigs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(machineConfig("50-bad", test.config))
			require.EqualError(t, err, `MachineConfig "50-bad": `+test.want)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, mcfgv1.ReasonInvalidMachineConfig, e.Reason)
			require.Equal(t, "50-bad", e.MachineConfig)
		})
	}
}

func TestParseRefusesFields(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*mcfgv1.MachineConfigSpec)
		want   string
	}{
		"an unknown kernel": {
			func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "fast" },
			`spec.kernelType: kernel type "fast" is not known; use default, realtime or 64k-pages`,
		},
		"an extension without a name": {
			func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"ipsec", " "} },
			`spec.extensions[1]: " " is no name of an extension`,
		},
		"two extensions in one": {
			func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"ipsec usbguard"} },
			`spec.extensions[0]: "ipsec usbguard" is no name of an extension`,
		},
		"an empty kernel argument": {
			func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"a", ""} },
			`spec.kernelArguments[1]: the kernel argument is empty: remove it`,
		},
		"a kernel argument with a line break": {
			func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"a=secret\nb"} },
			`spec.kernelArguments[0]: kernel argument "a" has a line break or another control character`,
		},
		"a kernel argument with a zero byte": {
			func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"a=\x00"} },
			`spec.kernelArguments[0]: kernel argument "a" has a line break or another control character`,
		},
		"a kernel argument with an open quote": {
			func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{`quiet`, `dyndbg="file secret`} },
			`spec.kernelArguments[1]: kernel argument "dyndbg" has a double quote that is not closed, so that it would take in all that follows: close or remove it`,
		},
		"a kernel argument with what is a blank there": {
			func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"a=à"} },
			`spec.kernelArguments[0]: kernel argument "a" has a character that the kernel takes for a blank: use plain ASCII`,
		},
		"an OS image that would be an instruction": {
			func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = "quay.io/a:b\nRUN id" },
			`spec.osImageURL: "quay.io/a:b\nRUN id" is no pull spec of an image`,
		},
		"an extensions image with a space": {
			func(s *mcfgv1.MachineConfigSpec) { s.BaseOSExtensionsContainerImage = "quay.io/a:b as x" },
			`spec.baseOSExtensionsContainerImage: "quay.io/a:b as x" is no pull spec of an image`,
		},
		"a kernel argument that Ignition's part forbids": {
			func(s *mcfgv1.MachineConfigSpec) {
				s.Config.Raw = []byte(ignition(`"kernelArguments":{"shouldNotExist":["x","pass=secret"]}`))
				s.KernelArguments = []string{"quiet pass=secret"}
			},
			`spec.kernelArguments[0]: kernel argument "pass" is asked for, and spec.config.kernelArguments.shouldNotExist forbids it: remove one of the two`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(machineConfig("50-bad", "", spec(test.change)))
			require.EqualError(t, err, `MachineConfig "50-bad": `+test.want)
		})
	}
}

func TestParseRefusesAnnotations(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		options []option
		want    string
	}{
		"another value": {
			[]option{annotated(mcfgv1.AnnotationNodeOnly, "yes")},
			`metadata.annotations[machineconfiguration.openshift.io/nodeOnly]: the value is "yes"; it has to be "true" or "false"`,
		},
		"no value": {
			[]option{annotated(mcfgv1.AnnotationNodeOnly, "")},
			`metadata.annotations[machineconfiguration.openshift.io/nodeOnly]: the value is ""; it has to be "true" or "false"`,
		},
		"a list that is none": {
			[]option{annotated(mcfgv1.AnnotationNodeOnlyContent, "{")},
			`metadata.annotations[machineconfiguration.openshift.io/nodeOnlyContent]: reading JSON: unexpected end of JSON input`,
		},
		"extensions that stay out of images": {
			[]option{nodeOnly(), spec(func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"ipsec"} })},
			onlyImage("spec.extensions"),
		},
		"a kernel that stays out of images": {
			[]option{nodeOnly(), spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelType = mcfgv1.KernelTypeRealtime })},
			onlyImage("spec.kernelType"),
		},
		"an OS image that stays out of images": {
			[]option{nodeOnly(), spec(func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = "quay.io/a:b" })},
			onlyImage("spec.osImageURL"),
		},
		"an extensions image that stays out of images": {
			[]option{nodeOnly(), spec(func(s *mcfgv1.MachineConfigSpec) { s.BaseOSExtensionsContainerImage = "quay.io/a:b" })},
			onlyImage("spec.baseOSExtensionsContainerImage"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(machineConfig("50-bad", files(file("/etc/a", "x")), test.options...))
			require.EqualError(t, err, `MachineConfig "50-bad": `+test.want)
		})
	}
}

func onlyImage(path string) string {
	return path + `: only an image can have this, and the annotation machineconfiguration.openshift.io/nodeOnly keeps this MachineConfig out of images: move it to another MachineConfig`
}

func TestPlacesAreThoseOfTheOriginal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	t.Run("in one line, behind long contents", func(t *testing.T) {
		t.Parallel()
		config := files(file("/etc/a", long) + "," + file("/etc/../b", long) + "," + file("/etc/c", long+"%"))
		_, err := Parse(machineConfig("50-bad", config))
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 1, e.Line)
		require.True(t, strings.HasPrefix(config[e.Column-1:], `"/etc/../b"`), "the column is where the path starts")
	})
	t.Run("in many lines", func(t *testing.T) {
		t.Parallel()
		config := fmt.Sprintf("{\"ignition\":{\"version\":\"3.4.0\"},\n\"storage\":{\"files\":[\n%s,\n%s]}}", file("/etc/a", long), file("/etc/c", long+"%"))
		_, err := Parse(machineConfig("50-bad", config))
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 4, e.Line)
		line := strings.Split(config, "\n")[3]
		require.True(t, strings.HasPrefix(line[e.Column-1:], `"data:,xxx`), "the column is where the content starts")
	})
	t.Run("of broken JSON", func(t *testing.T) {
		t.Parallel()
		config := strings.Replace(files(file("/etc/a", long)+","+file("/etc/b", long)), `"mode":420,"contents":{"source":"data:,x`, `"mode":42O,"contents":{"source":"data:,x`, 2)
		_, err := Parse(machineConfig("50-bad", config))
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, strings.IndexByte(config, 'O')+1, e.Column)
	})
}

func TestStandInsAreNotTakenForTexts(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"written out":                 file("/etc/a", "first") + `,{"path":"/etc/b","contents":{"source":"` + document.StandIn + `0"}}`,
		"under another key":           file("/etc/a", "first") + `,{"path":"/etc/b","contents":{"Source":"` + document.StandIn + `0"}}`,
		"with escapes":                file("/etc/a", "first") + `,{"path":"/etc/b","contents":{"source":"\u0064ata:,content-0"}}`,
		"with escapes further behind": file("/etc/a", "first") + `,{"path":"/etc/b","contents":{"source":"data:\u002ccontent-0"}}`,
	}
	for name, list := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := Parse(machineConfig("50-a", files(list)))
			require.NoError(t, err)
			require.Equal(t, "data:,first", *cfg.Ignition.Storage.Files[0].Contents.Source)
			require.Equal(t, document.StandIn+"0", *cfg.Ignition.Storage.Files[1].Contents.Source)
		})
	}
}

func TestDocumentTakesContentsOut(t *testing.T) {
	t.Parallel()
	raw := []byte(`{ "a" : "source", "source" : "data:,one", "b":["source"], "unit":"\"source\":\"data:,no\"", "c":{"source":
		"data:;base64,dHdv"}, "source":"data:,\u0031", "source":"http://x", "source":12, "source":"data:,with space" }`)
	d := document.New(raw)
	require.True(t, json.Valid(d.Small))
	var contents []string
	for _, c := range d.Cuts {
		contents = append(contents, c.Content)
	}
	require.Equal(t, []string{"data:,one", "data:;base64,dHdv", "data:,with space"}, contents)
	for i, c := range d.Cuts {
		require.Equal(t, c.Content, d.Restore(fmt.Sprintf("%s%d", document.StandIn, i)))
	}
	require.Equal(t, document.StandIn+"3", d.Restore(document.StandIn+"3"))
	require.Equal(t, document.StandIn+"x", d.Restore(document.StandIn+"x"))
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "storage", "storage.files[3].contents.source", "a[1][2].b"} {
		require.Equal(t, p, document.PathString(document.PathSegments(p)))
	}
	require.Negative(t, comparePaths("storage.files[2].path", "storage.files[10].path"))
	require.Negative(t, comparePaths("storage.files", "storage.files[0]"))
	require.Negative(t, comparePaths("spec.a", "spec.b"))
	require.Zero(t, comparePaths("spec.a", "spec.a"))
}
