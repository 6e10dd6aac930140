package layer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/osimage/osindex"
)

func ptr[T any](v T) *T { return &v }

// raw is a configuration as no one has checked it.
func raw(change func(c *types.Config)) *machineconfigs.Config {
	cfg := &machineconfigs.Config{Name: "rendered-worker-1"}
	change(&cfg.Ignition)
	return cfg
}

func fileAt(path string) types.File { return types.File{Node: types.Node{Path: path}} }

func source(url string) types.Resource { return types.Resource{Source: &url} }

func withFile(f types.File) *machineconfigs.Config {
	return raw(func(c *types.Config) { c.Storage.Files = []types.File{f} })
}

func withLink(l types.Link) *machineconfigs.Config {
	return raw(func(c *types.Config) { c.Storage.Links = []types.Link{l} })
}

func link(path, target string, hard bool) types.Link {
	return types.Link{Node: types.Node{Path: path}, LinkEmbedded1: types.LinkEmbedded1{Target: &target, Hard: &hard}}
}

func withUnits(all ...types.Unit) *machineconfigs.Config {
	return raw(func(c *types.Config) { c.Systemd.Units = all })
}

// badInputs are configurations that Split refuses, with what it says about them.
func badInputs() map[string]struct {
	cfg  *machineconfigs.Config
	want string
} {
	content := func(f types.File, url string) types.File {
		f.Contents = source(url)
		return f
	}
	return map[string]struct {
		cfg  *machineconfigs.Config
		want string
	}{
		"broken data URL":        {withFile(content(fileAt("/etc/x"), "data:;base64,!")), `spec.config.storage.files[0]: file /etc/x: `},
		"unknown scheme":         {withFile(content(fileAt("/etc/x"), "ftp://x/y")), "use http or https"},
		"not gzip":               {withFile(types.File{Node: types.Node{Path: "/etc/x"}, FileEmbedded1: types.FileEmbedded1{Contents: types.Resource{Source: ptr("data:,x"), Compression: ptr("gzip")}}}), "decompressing"},
		"wrong hash":             {withFile(types.File{Node: types.Node{Path: "/etc/x"}, FileEmbedded1: types.FileEmbedded1{Contents: types.Resource{Source: ptr("data:,x"), Verification: types.Verification{Hash: ptr("sha256-" + strings.Repeat("0", 64))}}}}), "verification.hash"},
		"to be fetched, no hash": {withFile(content(fileAt("/etc/x"), "https://h/x")), "set verification.hash"},
		"empty path":             {withFile(fileAt("")), "the path is empty"},
		"relative path":          {withFile(fileAt("etc/x")), `write "/etc/x"`},
		"path traversal":         {withFile(fileAt("/etc/../../x")), `write "/x"`},
		"double slash":           {withFile(fileAt("/etc//x")), `write "/etc/x"`},
		"root":                   {raw(func(c *types.Config) { c.Storage.Directories = []types.Directory{{Node: types.Node{Path: "/"}}} }), "the path is the root directory"},
		"zero byte":              {withFile(fileAt("/etc/a\x00b")), "zero byte"},
		"not UTF-8":              {withFile(fileAt("/etc/a\xff")), "not UTF-8"},
		"long path":              {withFile(fileAt("/etc" + strings.Repeat("/aaaaaaa", 600))), "Linux allows 4096"},
		"long name":              {withFile(fileAt("/etc/" + strings.Repeat("a", 256))), "Linux allows 255"},
		"whiteout name":          {withFile(fileAt("/etc/.wh.passwd")), `begins with ".wh."`},
		"whiteout directory":     {withFile(fileAt("/etc/.wh.d/x")), `begins with ".wh."`},
		"proc":                   {withFile(fileAt("/proc/sys/x")), "/proc is filled by the kernel"},
		"sys":                    {withFile(fileAt("/sys/x")), "/sys is filled by the kernel"},
		"dev":                    {withFile(fileAt("/dev/x")), "/dev is filled by the kernel"},
		"to the root by a link":  {withFile(fileAt("/rootlink")), `it leads to "/"`},
		"cyclic links":           {withFile(fileAt("/loop/x")), "too many symbolic links"},
		"a cyclic link itself":   {withFile(fileAt("/loop")), "too many symbolic links"},
		"below a file":           {withFile(fileAt("/etc/passwd/x")), `"/etc/passwd" is not a directory in the image below`},
		"over a directory":       {withFile(content(fileAt("/etc/private"), "data:,")), "remove the directory in the Containerfile"},
		"over a pipe":            {withFile(fileAt("/pipe")), "device, pipe or socket"},
		"mode too large":         {withFile(types.File{Node: types.Node{Path: "/etc/x"}, FileEmbedded1: types.FileEmbedded1{Mode: ptr(4096)}}), "from 0 to 4095 (octal 7777)"},
		"mode negative": {raw(func(c *types.Config) {
			c.Storage.Directories = []types.Directory{{Node: types.Node{Path: "/etc/x"}, DirectoryEmbedded1: types.DirectoryEmbedded1{Mode: ptr(-1)}}}
		}), "the mode -1 is out of range"},
		"overwrite is false": {withFile(types.File{
			Node: types.Node{Path: "/etc/chrony.conf", Overwrite: ptr(false)}, FileEmbedded1: types.FileEmbedded1{Contents: source("data:,x")},
		}), "set overwrite to true"},
		"overwrite of a link is false": {withFile(types.File{
			Node: types.Node{Path: "/etc/os-release", Overwrite: ptr(false)}, FileEmbedded1: types.FileEmbedded1{Contents: source("data:,x")},
		}), "set overwrite to true"},
		"unknown user":                   {withFile(types.File{Node: types.Node{Path: "/etc/x", User: types.NodeUser{Name: ptr("nobody2")}}}), `file /etc/x: user "nobody2" is not in the image below`},
		"unknown group":                  {withFile(types.File{Node: types.Node{Path: "/etc/x", Group: types.NodeGroup{Name: ptr("g")}}}), `set its number (id) instead`},
		"user of the nodes":              {config2(withFile(types.File{Node: types.Node{Path: "/etc/x", User: types.NodeUser{Name: ptr("admin")}}}), "admin"), "exists on nodes only"},
		"user out of range":              {withFile(types.File{Node: types.Node{Path: "/etc/x", User: types.NodeUser{ID: ptr(-1)}}}), "use 0 to 4294967294"},
		"same place twice":               {raw(func(c *types.Config) { c.Storage.Files = []types.File{fileAt("/bin/x"), fileAt("/usr/bin/x")} }), "file /usr/bin/x: it leads to /usr/bin/x, and so does file /bin/x: remove"},
		"same place as node state twice": {raw(func(c *types.Config) { c.Storage.Files = []types.File{fileAt("/home/x"), fileAt("/var/home/x")} }), "and so does file /home/x"},
		"file and link": {raw(func(c *types.Config) {
			c.Storage.Files = []types.File{fileAt("/etc/x")}
			c.Storage.Links = []types.Link{link("/etc/x", "y", false)}
		}), "link /etc/x: it leads to /etc/x, and so does file /etc/x"},
		"file and unit": {raw(func(c *types.Config) {
			c.Storage.Files = []types.File{fileAt("/etc/systemd/system/a.service")}
			c.Systemd.Units = []types.Unit{{Name: "a.service", Contents: ptr("x")}}
		}), "unit a.service: it leads to"},
		"below another file": {raw(func(c *types.Config) { c.Storage.Files = []types.File{fileAt("/etc/x"), fileAt("/etc/x/y")} }), "file /etc/x/y: it is below file /etc/x, which"},
		"below a replaced link": {raw(func(c *types.Config) {
			c.Storage.Files = []types.File{content(fileAt("/bin"), "data:,x"), fileAt("/bin/y")}
		}), "file /bin/y: it is below file /bin"},
		"below a link": {raw(func(c *types.Config) {
			c.Storage.Files = []types.File{fileAt("/etc/x/y")}
			c.Storage.Links = []types.Link{link("/etc/x", "/usr", false)}
		}), "it is below link /etc/x"},
		"record":                             {withFile(fileAt(layer.RecordPath)), "so does the record of the configuration, which Layerwright writes"},
		"in place of the record's directory": {withFile(fileAt("/etc/machine-config-daemon")), "it is below file /etc/machine-config-daemon"},
		"presets":                            {withFile(fileAt(layer.PresetPath)), "so does the presets, which Layerwright writes"},
		"in place of a folder of links": {raw(func(c *types.Config) {
			c.Storage.Files = []types.File{fileAt("/etc/systemd/system/basic.target.wants")}
			c.Systemd.Units = []types.Unit{{Name: "a.service", Enabled: ptr(true), Contents: ptr("[Install]\nWantedBy=basic.target\n")}}
		}), "file /etc/systemd/system/basic.target.wants: /etc/systemd/system/basic.target.wants/a.service has to be below it"},
		"directory over a file": {raw(func(c *types.Config) {
			c.Storage.Directories = []types.Directory{{Node: types.Node{Path: "/etc/passwd"}}}
		}), "no layer turns that into a directory"},
		"directory over a link": {raw(func(c *types.Config) {
			c.Storage.Directories = []types.Directory{{Node: types.Node{Path: "/etc/os-release", Overwrite: ptr(true)}}}
		}), "no layer turns that into a directory"},
		"link without target":      {withLink(types.Link{Node: types.Node{Path: "/etc/x"}}), "a link needs a target"},
		"link with a zero byte":    {withLink(link("/etc/x", "a\x00", false)), "without a zero byte"},
		"link over a file":         {withLink(link("/etc/passwd", "x", false)), "set overwrite to true"},
		"link over another link":   {withLink(link("/etc/os-release", "x", false)), "set overwrite to true"},
		"link over a directory":    {withLink(link("/etc/private", "x", false)), "remove it in the Containerfile"},
		"hard link to nothing":     {withLink(link("/etc/x", "/etc/y", true)), "the target /etc/y is not a file of the image"},
		"hard link to a directory": {withLink(link("/etc/x", "/etc/private", true)), "is not a file of the image"},
		"hard link to a link":      {withLink(link("/etc/x", "/etc/os-release", true)), "is not a file of the image"},
		"hard link out of the image": {raw(func(c *types.Config) {
			c.Storage.Files, c.Storage.Links = []types.File{fileAt("/var/x")}, []types.Link{link("/etc/x", "/var/x", true)}
		}), "a hard link cannot lead out of it"},
		"hard link to a hard link": {raw(func(c *types.Config) {
			c.Storage.Links = []types.Link{link("/etc/x", "/etc/y", true), link("/etc/y", "/etc/x", true)}
		}), "is itself a hard link"},
		"hard link to a symbolic link of the configuration": {raw(func(c *types.Config) {
			c.Storage.Links = []types.Link{link("/etc/x", "/etc/y", true), link("/etc/y", "z", false)}
		}), "the target /etc/y is not a file"},
		"unit without type":         {withUnits(types.Unit{Name: "a"}), "systemd.units[0]: unit a: "},
		"unit of unknown type":      {withUnits(types.Unit{Name: "a.snapshot"}), ".snapshot is no type of units"},
		"unit with a slash":         {withUnits(types.Unit{Name: "../a.service"}), `not "/"`},
		"unit with an empty name":   {withUnits(types.Unit{Name: ""}), "a unit needs a name"},
		"unit with a long name":     {withUnits(types.Unit{Name: strings.Repeat("a", 250) + ".service"}), "at most 255 bytes"},
		"unit that hides another":   {withUnits(types.Unit{Name: ".wh.a.service", Contents: ptr("x")}), `begins with ".wh."`},
		"unit twice":                {withUnits(types.Unit{Name: "a.service"}, types.Unit{Name: "a.service"}), "the unit is there twice"},
		"unit over a directory":     {withUnits(types.Unit{Name: "dir.service", Contents: ptr("x")}), "a directory or device at /etc/systemd/system/dir.service"},
		"drop-in with a slash":      {withUnits(types.Unit{Name: "a.service", Dropins: []types.Dropin{{Name: "../a.conf", Contents: ptr("x")}}}), "systemd.units[0].dropins[0]: drop-in ../a.conf of unit a.service"},
		"drop-in without suffix":    {withUnits(types.Unit{Name: "a.service", Dropins: []types.Dropin{{Name: "a", Contents: ptr("x")}}}), "ends in .conf"},
		"drop-in twice":             {withUnits(types.Unit{Name: "a.service", Dropins: []types.Dropin{{Name: "a.conf", Contents: ptr("x")}, {Name: "a.conf"}}}), "and so does drop-in a.conf"},
		"enabling a missing unit":   {withUnits(types.Unit{Name: "missing.service", Enabled: ptr(true)}), `unit missing.service: enabling "missing.service": there is no such unit: give the unit contents`},
		"enabling a masked unit":    {withUnits(types.Unit{Name: "masked.service", Enabled: ptr(true)}), "set mask to false"},
		"enabling over an alias":    {withUnits(types.Unit{Name: "a.service", Enabled: ptr(true), Contents: ptr("[Install]\nAlias=ntp.service\n")}), "remove what is there in the Containerfile"},
		"enabling another name":     {withUnits(types.Unit{Name: "ntp.service", Enabled: ptr(true)}), `the name is only a link to "chronyd.service": enable that one`},
		"enabling for this machine": {withUnits(types.Unit{Name: "a.service", Enabled: ptr(true), Contents: ptr("[Install]\nWantedBy=%H.target\n")}), "%H depends on the machine"},
		"enabling what has no end":  {withUnits(types.Unit{Name: "a.service", Enabled: ptr(true), Contents: ptr("[Install\n")}), "invalid section header"},
		"enabling a link in the way": {raw(func(c *types.Config) {
			c.Storage.Links = []types.Link{link("/etc/systemd/system/basic.target.wants/a.service", "/elsewhere", false)}
			c.Systemd.Units = []types.Unit{{Name: "a.service", Enabled: ptr(true), Contents: ptr("[Install]\nWantedBy=basic.target\n")}}
		}), `a unit with "enabled" needs a link to /etc/systemd/system/a.service there`},
		"disabling a link of the configuration": {raw(func(c *types.Config) {
			c.Storage.Links = []types.Link{link("/etc/systemd/system/basic.target.wants/sshd.service", "/usr/lib/systemd/system/sshd.service", false)}
			c.Systemd.Units = []types.Unit{{Name: "sshd.service", Enabled: ptr(false)}}
		}), `a unit with "enabled" needs nothing there`},
		"enabling what has to be fetched": {raw(func(c *types.Config) {
			f := fileAt("/etc/systemd/system/a.service")
			f.Contents = types.Resource{Source: ptr("https://h/x"), Verification: types.Verification{Hash: ptr("sha256-" + strings.Repeat("0", 64))}}
			c.Storage.Files = []types.File{f}
			c.Systemd.Units = []types.Unit{{Name: "a.service", Enabled: ptr(true)}}
		}), "put the unit into systemd.units"},
	}
}

func config2(cfg *machineconfigs.Config, user string) *machineconfigs.Config {
	cfg.Ignition.Passwd.Users = []types.PasswdUser{{Name: user}}
	return cfg
}

func badBase() base {
	return ostree().with(base{"rootlink": "-> /", "loop": "-> loop", "pipe": "|", admin + "dir.service/": ""})
}

// errorsOf are what Split or Build found wrong, one by one.
func errorsOf(err error) []*layer.Error {
	var all []*layer.Error
	var one *layer.Error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, errorsOf(e)...)
		}
		return all
	}
	if errors.As(err, &one) {
		all = append(all, one)
	}
	return all
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	index := badBase().index(t)
	for name, test := range badInputs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := layer.Split(test.cfg, index)
			require.ErrorContains(t, err, test.want)
			all := errorsOf(err)
			require.NotEmpty(t, all)
			for _, e := range all {
				require.Equal(t, "rendered-worker-1", e.MachineConfig)
				require.NotEmpty(t, e.Item)
				require.Contains(t, e.Error(), `MachineConfig "rendered-worker-1": `)
			}
		})
	}
}

func TestAllErrorsAreTold(t *testing.T) {
	t.Parallel()
	_, err := layer.Split(raw(func(c *types.Config) {
		c.Storage.Files = []types.File{fileAt("x"), fileAt("/proc/x"), fileAt("/etc/x")}
		c.Systemd.Units = []types.Unit{{Name: "a"}}
	}), &osindex.Index{})
	var places []string
	for _, e := range errorsOf(err) {
		places = append(places, e.Path)
	}
	require.Equal(t, []string{"spec.config.storage.files[0]", "spec.config.storage.files[1]", "spec.config.systemd.units[0]"}, places)
	require.Empty(t, errorsOf(nil))
}

func TestImageWithoutAPlaceForTheRecord(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]base{
		"a directory": {"etc/machine-config-daemon/currentconfig/": ""},
		"a file":      {"etc/machine-config-daemon": "x"},
		"below var":   {"etc/machine-config-daemon": "-> ../var/mcd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := layer.Split(raw(func(*types.Config) {}), b.index(t))
			require.ErrorContains(t, err, "no place for the record of the configuration")
			require.ErrorContains(t, err, "Containerfile")
		})
	}
}
