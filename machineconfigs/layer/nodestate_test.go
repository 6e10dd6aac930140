package layer_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
	"github.com/layerwright/layerwright/machineconfigs/layer/nodestate"
)

const (
	secretHash = "$y$secret-hash"             //nolint:gosec // made up
	secretKey  = "ssh-ed25519 AAAAsecret-key" //nolint:gosec // made up
)

// nodeConfig has something of every kind of node state, and one file for the image.
func nodeConfig(t *testing.T) *machineconfigs.Config {
	t.Helper()
	cfg := config(t, `{
		"ignition":{"version":"3.5.0","security":{"tls":{"certificateAuthorities":[{"source":"https://user:secret-pass@h/ca?secret-query"},{"source":"data:,secret-ca"}]}},
			"proxy":{"httpProxy":"http://secret-proxy"},"timeouts":{"httpTotal":3}},
		"kernelArguments":{"shouldExist":["rd.x=secret-arg"],"shouldNotExist":["quiet","mitigations=secret-arg,nosmt"]},
		"passwd":{"users":[{"name":"core","passwordHash":"`+secretHash+`","sshAuthorizedKeys":["`+secretKey+`","`+secretKey+`2"],"groups":["wheel"]},
			{"name":"one","sshAuthorizedKeys":["`+secretKey+`"]},{"name":"none"}],"groups":[{"name":"admins","gid":77}]},
		"storage":{
			"disks":[{"device":"/dev/sda","wipeTable":true}],"raid":[{"name":"r","level":"raid1","devices":["/dev/sda","/dev/sdb"]}],
			"luks":[{"name":"l","device":"/dev/sdc"}],"filesystems":[{"device":"/dev/sdd","format":"xfs"}],
			"files":[{"path":"/etc/image"},{"path":"/home/core/x","contents":{"source":"data:,secret-content"}},{"path":"/var/lib/x"},{"path":"/usr/local/bin/t"},
				{"path":"/run/x"},{"path":"/tmp/x"},{"path":"/boot/x"},{"path":"/ostree/x"},{"path":"/etc/token","contents":{"source":"data:,secret-token"}}],
			"directories":[{"path":"/root/.ssh","mode":448},{"path":"/opt"},{"path":"/etc/secrets"}],
			"links":[{"path":"/opt/l","target":"x"},{"path":"/etc/secret-link","target":"x"}]},
		"systemd":{"units":[`+unit("secret.service", "[Service]\nEnvironment=T=secret-unit\n[Install]\nWantedBy=multi-user.target\n", `"enabled":true,"dropins":[{"name":"a.conf","contents":"secret-dropin"}]`)+`]}}`)
	cfg.KernelArguments = append(cfg.KernelArguments, "nosmt", "hugepages=16", `pass="file secret-arg +p"`)
	cfg.FIPS = true
	cfg.NodeOnly = machineconfigs.NodeOnly{
		Files: []string{"/etc/token"}, Directories: []string{"/etc/secrets"}, Links: []string{"/etc/secret-link"}, Units: []string{"secret.service"},
	}
	return cfg
}

func TestNodeState(t *testing.T) {
	t.Parallel()
	state := split(t, nodeConfig(t), ostree()).NodeState

	require.Equal(t, []string{"rd.x=secret-arg", "nosmt", "hugepages=16", `pass="file secret-arg +p"`}, state.KernelArguments.Add, "each once")
	require.Equal(t, []string{"quiet", "mitigations=secret-arg,nosmt"}, state.KernelArguments.Remove)
	require.NotEmpty(t, state.KernelArguments.Reason)
	require.True(t, state.FIPS.Enabled)
	require.NotEmpty(t, state.FIPS.Reason)
	require.Len(t, state.Users, 3)
	require.Equal(t, secretHash, *state.Users[0].User.PasswordHash)
	require.Len(t, state.Groups, 1)
	require.Equal(t, 77, *state.Groups[0].Group.Gid)

	type where struct{ path, resolved, reason string }
	var places []where
	for _, f := range state.Files {
		places = append(places, where{f.File.Path, f.Resolved, f.Reason})
	}
	for _, d := range state.Directories {
		places = append(places, where{d.Directory.Path, d.Resolved, d.Reason})
	}
	for _, l := range state.Links {
		places = append(places, where{l.Link.Path, l.Resolved, l.Reason})
	}
	const (
		only = "a MachineConfig with the annotation nodeOnly sets it"
		seed = "an image's /var only seeds a new machine's, and later images don't change it"
	)
	require.Equal(t, []where{
		{"/home/core/x", "/var/home/core/x", "it leads to /var/home/core/x; " + seed},
		{"/var/lib/x", "/var/lib/x", seed},
		{"/usr/local/bin/t", "/var/usrlocal/bin/t", "it leads to /var/usrlocal/bin/t; " + seed},
		{"/run/x", "/run/x", "/run is empty after every boot, whatever the image has there"},
		{"/tmp/x", "/tmp/x", "/tmp is empty after every boot, whatever the image has there"},
		{"/boot/x", "/boot/x", "/boot is a file system of the machine, not of the image"},
		{"/ostree/x", "/sysroot/ostree/x", "it leads to /sysroot/ostree/x; /sysroot is the machine's disk, below all images"},
		{"/etc/token", "/etc/token", only},
		{"/root/.ssh", "/var/roothome/.ssh", "it leads to /var/roothome/.ssh; " + seed},
		{"/opt", "/var/opt", "it leads to /var/opt; " + seed},
		{"/etc/secrets", "/etc/secrets", only},
		{"/opt/l", "/var/opt/l", "it leads to /var/opt/l; " + seed},
		{"/etc/secret-link", "/etc/secret-link", only},
	}, places)
	require.Len(t, state.Units, 1)
	require.Equal(t, "a.conf", state.Units[0].Unit.Dropins[0].Name)

	sections := map[string][]string{}
	for _, f := range state.FirstBoot {
		sections[f.Section] = f.Names
		require.NotEmpty(t, f.Reason)
	}
	require.Equal(t, map[string][]string{
		"storage.disks": {"/dev/sda"}, "storage.raid": {"r"}, "storage.luks": {"l"}, "storage.filesystems": {"/dev/sdd"},
		"ignition.security.tls.certificateAuthorities": {"https://h/ca", "data URL"}, "ignition.proxy": nil, "ignition.timeouts": nil,
	}, sections)
}

func TestNodeStateStaysOutOfTheImage(t *testing.T) {
	t.Parallel()
	cfg := nodeConfig(t)
	plan := split(t, cfg, ostree())
	require.Equal(t, []string{"file /etc/image"}, names(plan))
	l, err := plan.Build(layer.Inputs{})
	require.NoError(t, err)
	require.Equal(t, []string{"etc/image"}, changes(entries(l)))
	for _, e := range entries(l) {
		require.NotContains(t, string(e.Content), "secret")
		require.NotContains(t, string(e.Content), "nosmt")
	}
	without := config(t, `{"storage":{"files":[{"path":"/etc/image"}]}}`)
	other, err := split(t, without, ostree()).Build(layer.Inputs{})
	require.NoError(t, err)
	require.Equal(t, other, l, "node state changes no image")
}

func TestSummaryHasNoSecrets(t *testing.T) {
	t.Parallel()
	plan := split(t, nodeConfig(t), ostree())
	lines := plan.NodeState.Summary()
	text := strings.Join(lines, "\n")
	for _, secret := range []string{"+p", "secret-hash", "secret-key", "secret-arg", "secret-pass", "secret-query", "secret-ca", "secret-proxy", "secret-content", "secret-token", "secret-unit"} {
		require.NotContains(t, text, secret)
	}
	require.Contains(t, text, "kernel arguments (add rd.x nosmt hugepages pass; remove quiet mitigations): ")
	require.Contains(t, text, "FIPS mode: ")
	require.Contains(t, text, "user core (2 SSH keys, password, groups: 1): ")
	require.Contains(t, text, "user one (1 SSH key): ")
	require.Contains(t, text, "user none (account): ")
	require.Contains(t, text, "group admins: ")
	require.Contains(t, text, "file /home/core/x: it leads to /var/home/core/x; ")
	require.Contains(t, text, "directory /root/.ssh: ")
	require.Contains(t, text, "link /opt/l: ")
	require.Contains(t, text, "unit secret.service: ")
	require.Contains(t, text, "storage.disks (/dev/sda): ")
	require.Len(t, lines, 1+1+3+1+8+3+2+1+7)
	require.Empty(t, nodestate.State{}.Summary())
}

func TestNodeStateSurvivesJSON(t *testing.T) {
	t.Parallel()
	state := split(t, nodeConfig(t), ostree()).NodeState
	data, err := json.Marshal(state)
	require.NoError(t, err)
	var back nodestate.State
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, state, back)
	empty, err := json.Marshal(nodestate.State{})
	require.NoError(t, err)
	require.JSONEq(t, "{}", string(empty))
}

func names(p *layer.Plan) []string {
	var all []string
	for _, i := range p.Items {
		all = append(all, i.Name)
	}
	return all
}
