package machineconfigs

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Limits of Linux: PATH_MAX and NAME_MAX without the closing zero byte, and systemd's for the name
// of a unit (systemd.unit(5)).
const (
	maxPath     = 4095
	maxPathPart = 255
	maxUnitName = 255
)

// checker makes the checks that Ignition leaves out, because it would only fail on the machine, or
// because an image has to be described exactly.
type checker struct {
	reader   *ignitionReader
	contents decoder
	// size is that of all contents so far.
	size int64
}

func (c *checker) check(cfg *types.Config) {
	c.checkIgnition(&cfg.Ignition)
	c.checkStorage(&cfg.Storage)
	c.checkUnits(cfg.Systemd.Units)
	c.checkPasswd(&cfg.Passwd)
	c.checkKernelArguments("shouldExist", cfg.KernelArguments.ShouldExist)
	c.checkKernelArguments("shouldNotExist", cfg.KernelArguments.ShouldNotExist)
}

func (c *checker) add(path, element string, err error) {
	if err == nil {
		return
	}
	e := c.reader.mistake(path, err)
	e.Element = element
	c.reader.found = append(c.reader.found, e)
}

func (c *checker) checkIgnition(ignition *types.Ignition) {
	elsewhere := errors.New("a MachineConfig has to say everything itself, so that the same MachineConfigs always mean the same image: " +
		"copy what is there into this MachineConfig, or into one of its own")
	if len(ignition.Config.Merge) > 0 {
		c.add("ignition.config.merge", "", elsewhere)
	}
	if ignition.Config.Replace.Source != nil {
		c.add("ignition.config.replace", "", elsewhere)
	}
	for i, ca := range ignition.Security.TLS.CertificateAuthorities {
		at := fmt.Sprintf("ignition.security.tls.certificateAuthorities[%d]", i)
		c.add(at, "", c.checkData(ca))
	}
}

func (c *checker) checkStorage(storage *types.Storage) {
	for i := range storage.Files {
		file := &storage.Files[i]
		at, element := fmt.Sprintf("storage.files[%d]", i), fmt.Sprintf("file %q", file.Path)
		c.checkNode(at, element, &file.Node)
		if file.Path == "/" {
			c.add(at+".path", element, errors.New("/ is a directory"))
		}
		c.checkResource(at+".contents", element, file.Contents)
		for j, fragment := range file.Append {
			c.checkResource(fmt.Sprintf("%s.append[%d]", at, j), element, fragment)
		}
	}
	for i := range storage.Directories {
		directory := &storage.Directories[i]
		c.checkNode(fmt.Sprintf("storage.directories[%d]", i), fmt.Sprintf("directory %q", directory.Path), &directory.Node)
	}
	for i := range storage.Links {
		c.checkLink(i, &storage.Links[i])
	}
	for i := range storage.Luks {
		keyFile := storage.Luks[i].KeyFile
		c.add(fmt.Sprintf("storage.luks[%d].keyFile", i), fmt.Sprintf("encrypted device %q", storage.Luks[i].Name), c.checkData(keyFile))
	}
}

func (c *checker) checkLink(i int, link *types.Link) {
	at, element := fmt.Sprintf("storage.links[%d]", i), fmt.Sprintf("link %q", link.Path)
	c.checkNode(at, element, &link.Node)
	if link.Path == "/" {
		c.add(at+".path", element, errors.New("/ is a directory"))
	}
	if link.Target == nil {
		return // Ignition requires one
	}
	hard := link.Hard != nil && *link.Hard
	switch target := *link.Target; {
	case hasControl(target) || len(target) > maxPath:
		c.add(at+".target", element, fmt.Errorf("%q is no target of a link", target))
	case hard && (!path.IsAbs(target) || path.Clean(target) != target):
		c.add(at+".target", element, fmt.Errorf("a hard link needs an absolute path without \"..\" as target, not %q", target))
	}
}

func (c *checker) checkNode(at, element string, node *types.Node) {
	c.add(at+".path", element, checkPath(node.Path))
	c.add(at+".user", element, checkOwner(node.User.ID, node.User.Name))
	c.add(at+".group", element, checkOwner(node.Group.ID, node.Group.Name))
}

// checkPath is for paths that Ignition has found absolute and clean.
func checkPath(p string) error {
	if hasControl(p) {
		return errors.New("the path has a line break or another control character")
	}
	if len(p) > maxPath {
		return fmt.Errorf("the path is longer than %d bytes", maxPath)
	}
	for part := range strings.SplitSeq(p, "/") {
		if len(part) > maxPathPart {
			return fmt.Errorf("the path has a part that is longer than %d bytes", maxPathPart)
		}
	}
	return nil
}

// checkOwner keeps to what a tar header and the kernel can hold; the last number means "no one in
// particular" to chown(2).
func checkOwner(id *int, name *string) error {
	if id != nil && (*id < 0 || int64(*id) >= 1<<32-1) {
		return fmt.Errorf("%d is no user or group ID", *id)
	}
	if name != nil && *name != "" {
		return checkAccountName(*name)
	}
	return nil
}

// checkAccountName refuses what would break /etc/passwd and /etc/group.
func checkAccountName(name string) error {
	if name == "" || strings.ContainsAny(name, ":/, ") || hasControl(name) || strings.HasPrefix(name, "-") {
		return fmt.Errorf("%q is no name of a user or group", name)
	}
	return nil
}

func (c *checker) checkResource(at, element string, r types.Resource) {
	remote, err := c.contents.decode(r)
	if err == nil && c.size <= MaxContents {
		if c.size += c.contents.size; c.size > MaxContents {
			err = errTooMuch
		}
	}
	switch {
	case err != nil:
		c.add(at+".source", element, err)
	case remote && r.Verification.Hash == nil:
		// The URL may have a password in it; the path says which one is meant.
		c.add(at+".source", element, errors.New("the content behind this URL could be another one tomorrow, and with it the image: "+
			"add verification.hash (sha256-... or sha512-...)"))
	}
}

// checkData checks a resource that is for a machine's first boot only, and may come from anywhere.
func (c *checker) checkData(r types.Resource) error {
	if r.Source == nil || !strings.HasPrefix(*r.Source, "data:") {
		return nil
	}
	_, err := c.contents.decode(r)
	return err
}

func (c *checker) checkUnits(units []types.Unit) {
	for i := range units {
		at, element := fmt.Sprintf("systemd.units[%d]", i), fmt.Sprintf("unit %q", units[i].Name)
		c.add(at+".name", element, checkUnitName(units[i].Name))
		for j, dropin := range units[i].Dropins {
			c.add(fmt.Sprintf("%s.dropins[%d].name", at, j), fmt.Sprintf("drop-in %q of %s", dropin.Name, element), checkDropinName(dropin.Name))
		}
	}
}

// checkUnitName follows systemd.unit(5): letters, digits and ":-_.\" before the type, and one "@"
// that is not the first character.
func checkUnitName(name string) error {
	prefix := strings.TrimSuffix(name, path.Ext(name))
	switch {
	case len(name) > maxUnitName:
		return fmt.Errorf("the name is longer than %d bytes", maxUnitName)
	case prefix == "" || prefix[0] == '@' || !onlyUnitCharacters(prefix):
		return fmt.Errorf("%q is no name of a unit: use letters, digits, and : - _ . \\ @ in it", name)
	}
	return nil
}

const unitCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\"

func onlyUnitCharacters(prefix string) bool {
	for i := range len(prefix) {
		if strings.IndexByte(unitCharacters+"@", prefix[i]) < 0 {
			return false
		}
	}
	return true
}

func checkDropinName(name string) error {
	if len(name) > maxPathPart || strings.Contains(name, "/") || hasControl(name) || strings.HasPrefix(name, ".") {
		return fmt.Errorf("%q is no name of a drop-in: it is the name of a file, and ends in .conf", name)
	}
	return nil
}

func (c *checker) checkPasswd(passwd *types.Passwd) {
	for i, user := range passwd.Users {
		at, element := fmt.Sprintf("passwd.users[%d]", i), fmt.Sprintf("user %q", user.Name)
		c.add(at+".name", element, checkAccountName(user.Name))
		c.add(at+".uid", element, checkOwner(user.UID, user.PrimaryGroup))
		if user.HomeDir != nil && *user.HomeDir != "" && (!path.IsAbs(*user.HomeDir) || path.Clean(*user.HomeDir) != *user.HomeDir) {
			c.add(at+".homeDir", element, fmt.Errorf("%q is no absolute path without \"..\"", *user.HomeDir))
		}
		for field, text := range map[string]*string{"gecos": user.Gecos, "homeDir": user.HomeDir, "shell": user.Shell, "passwordHash": user.PasswordHash} {
			if text != nil && (hasControl(*text) || strings.Contains(*text, ":")) {
				c.add(at+"."+field, element, fmt.Errorf("a colon or control character would break /etc/passwd"))
			}
		}
	}
	for i, group := range passwd.Groups {
		at, element := fmt.Sprintf("passwd.groups[%d]", i), fmt.Sprintf("group %q", group.Name)
		c.add(at+".name", element, checkAccountName(group.Name))
		c.add(at+".gid", element, checkOwner(group.Gid, nil))
	}
}

func (c *checker) checkKernelArguments(list string, arguments []types.KernelArgument) {
	for i, argument := range arguments {
		c.add(fmt.Sprintf("kernelArguments.%s[%d]", list, i), "", checkKernelArgument(string(argument)))
	}
}
