package nodestate

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs/cmdline"
)

// Summary says in lines for people what the node agent will do. There is no secret in it: no key,
// no hash, no content, no value of a kernel argument.
func (s State) Summary() []string {
	lines := slices.Concat(s.KernelArguments.summary(), s.FIPS.summary())
	for _, u := range s.Users {
		lines = append(lines, fmt.Sprintf("user %s (%s): %s", u.User.Name, aboutUser(u.User), u.Reason))
	}
	for _, g := range s.Groups {
		lines = append(lines, fmt.Sprintf("group %s: %s", g.Group.Name, g.Reason))
	}
	for _, f := range s.Files {
		lines = append(lines, fmt.Sprintf("file %s: %s", f.File.Path, f.Reason))
	}
	for _, d := range s.Directories {
		lines = append(lines, fmt.Sprintf("directory %s: %s", d.Directory.Path, d.Reason))
	}
	for _, l := range s.Links {
		lines = append(lines, fmt.Sprintf("link %s: %s", l.Link.Path, l.Reason))
	}
	for _, u := range s.Units {
		lines = append(lines, fmt.Sprintf("unit %s: %s", u.Unit.Name, u.Reason))
	}
	for _, f := range s.FirstBoot {
		about := f.Section
		if len(f.Names) > 0 {
			about += " (" + strings.Join(f.Names, ", ") + ")"
		}
		lines = append(lines, about+": "+f.Reason)
	}
	return lines
}

func (k KernelArguments) summary() []string {
	var parts []string
	if len(k.Add) > 0 {
		parts = append(parts, "add "+strings.Join(argumentNames(k.Add), " "))
	}
	if len(k.Remove) > 0 {
		parts = append(parts, "remove "+strings.Join(argumentNames(k.Remove), " "))
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("kernel arguments (%s): %s", strings.Join(parts, "; "), k.Reason)}
}

// argumentNames leaves out what follows the first "=" of each word: it may be a password.
func argumentNames(words []string) []string {
	names := make([]string, len(words))
	for i, word := range words {
		names[i] = cmdline.Name(word)
	}
	return names
}

func (f FIPS) summary() []string {
	if !f.Enabled {
		return nil
	}
	return []string{"FIPS mode: " + f.Reason}
}

func aboutUser(u types.PasswdUser) string {
	about := []string{}
	if n := len(u.SSHAuthorizedKeys); n == 1 {
		about = append(about, "1 SSH key")
	} else if n > 1 {
		about = append(about, fmt.Sprintf("%d SSH keys", n))
	}
	if u.PasswordHash != nil {
		about = append(about, "password")
	}
	if n := len(u.Groups); n > 0 {
		about = append(about, fmt.Sprintf("groups: %d", n))
	}
	if len(about) == 0 {
		return "account"
	}
	return strings.Join(about, ", ")
}

// sourceName names a source without what may be secret in it: user, password, query, or content.
func sourceName(r types.Resource) string {
	if r.Source == nil || *r.Source == "" {
		return "empty"
	}
	u, err := url.Parse(*r.Source)
	if err != nil || u.Host == "" {
		scheme, _, _ := strings.Cut(*r.Source, ":")
		return scheme + " URL"
	}
	return u.Scheme + "://" + u.Host + u.Path
}
