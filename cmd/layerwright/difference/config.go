package difference

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/builder/plan"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/cmdline"
	"github.com/layerwright/layerwright/rollout/disruption"
)

// The kinds of what a configuration has, as changes name them.
const (
	ofFile      = "file "
	ofDirectory = "directory "
	ofLink      = "link "
	ofUnit      = "unit "
	ofSSHKeys   = "SSH keys of user "
	ofPassword  = "password of user "
)

// configChanges are how two rendered MachineConfigs differ, in the order of their names.
func configChanges(before, after *machineconfigs.Config) []plan.Change {
	return plan.Explain(&plan.Inputs{Config: itemsOf(before)}, &plan.Inputs{Config: itemsOf(after)})
}

// itemsOf is what a configuration has.
func itemsOf(cfg *machineconfigs.Config) []plan.Item {
	var items []plan.Item
	add := func(kind, name string, content ...any) {
		text, _ := json.Marshal(content) //nolint:errchkjson // it was read from JSON
		sum := sha256.Sum256(text)
		items = append(items, plan.Item{Name: kind + name, Hash: hex.EncodeToString(sum[:])})
	}
	storage := &cfg.Ignition.Storage
	for i := range storage.Files {
		f := &storage.Files[i]
		data, isRemote, err := machineconfigs.DecodeContents(f.Contents)
		if isRemote || err != nil {
			add(ofFile, f.Path, f)
			continue
		}
		add(ofFile, f.Path, data, f.Mode, f.User, f.Group, f.Append)
	}
	for i := range storage.Directories {
		add(ofDirectory, storage.Directories[i].Path, storage.Directories[i])
	}
	for i := range storage.Links {
		add(ofLink, storage.Links[i].Path, storage.Links[i])
	}
	for i := range cfg.Ignition.Systemd.Units {
		add(ofUnit, cfg.Ignition.Systemd.Units[i].Name, cfg.Ignition.Systemd.Units[i])
	}
	for i := range cfg.Ignition.Passwd.Users {
		addUser(add, cfg.Ignition.Passwd.Users[i])
	}
	for i := range cfg.Ignition.Passwd.Groups {
		add("group ", cfg.Ignition.Passwd.Groups[i].Name, cfg.Ignition.Passwd.Groups[i])
	}
	for _, argument := range cfg.KernelArguments { // the value may be a password
		add("kernel argument ", cmdline.Name(argument), argument)
	}
	for _, argument := range cfg.RemoveKernelArguments {
		add("removal of kernel argument ", cmdline.Name(argument), argument)
	}
	for _, extension := range cfg.Extensions {
		add("extension ", extension)
	}
	add("kernel type", "", cfg.KernelType)
	add("FIPS mode", "", cfg.FIPS)
	return items
}

func addUser(add func(kind, name string, content ...any), user types.PasswdUser) {
	if len(user.SSHAuthorizedKeys) > 0 {
		add(ofSSHKeys, user.Name, slices.Sorted(slices.Values(user.SSHAuthorizedKeys)))
	}
	if user.PasswordHash != nil {
		add(ofPassword, user.Name, *user.PasswordHash)
	}
	user.SSHAuthorizedKeys, user.PasswordHash = nil, nil
	add("user ", user.Name, user)
}

// disruptionOf is what changes of the configuration change on a node, as far as that can be said
// without the node: it is what the node's agent finds where nothing was edited there.
func disruptionOf(changes []plan.Change, before, after *machineconfigs.Config) disruption.Change {
	var out disruption.Change
	for _, change := range changes {
		what := change.What
		switch kind, name := kindOf(what); {
		case kind == ofFile, kind == ofLink:
			switch {
			case isNodeState(name, before, after):
				out.NodeFiles = append(out.NodeFiles, name)
			case strings.HasPrefix(name, "/etc/"):
				out.Files = append(out.Files, name)
			default:
				out.Reboot = what + " differs, and is not in /etc"
			}
		case kind == ofUnit:
			out.Files = append(out.Files, path.Join("/etc/systemd/system", name))
		case kind == ofSSHKeys:
			out.SSHKeys = true
		case kind == ofDirectory, kind == ofPassword, strings.HasPrefix(what, "user "), strings.HasPrefix(what, "group "):
		default:
			out.Reboot = what + " differs"
		}
	}
	return out
}

func kindOf(what string) (kind, name string) {
	for _, kind := range []string{ofFile, ofDirectory, ofLink, ofUnit, ofSSHKeys, ofPassword} {
		if name, is := strings.CutPrefix(what, kind); is {
			return kind, name
		}
	}
	return "", what
}

// mutable are the folders that no image fills on a node, with those that are links into /var on
// ostree systems.
var mutable = []string{"/var/", "/run/", "/tmp/", "/boot/", "/home/", "/root/", "/opt/", "/srv/", "/mnt/", "/usr/local/"}

// isNodeState reports whether a path is no part of an image.
func isNodeState(at string, configs ...*machineconfigs.Config) bool {
	for _, cfg := range configs {
		if slices.Contains(cfg.NodeOnly.Files, at) || slices.Contains(cfg.NodeOnly.Links, at) {
			return true
		}
	}
	return slices.ContainsFunc(mutable, func(folder string) bool { return strings.HasPrefix(at, folder) })
}

// words are a verdict for people.
func words(v disruption.Verdict) string {
	if v.Reboot != "" {
		return "drain and reboot: " + v.Reboot
	}
	text := "changes as it runs"
	if v.Drain {
		text = "drain, and changes as it runs"
	}
	for _, action := range v.Actions {
		text += "; " + strings.TrimSpace(string(action.Verb)+" "+action.Unit)
	}
	if len(v.Actions) == 0 {
		return text + ", and no unit is told"
	}
	return text
}

func number(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
