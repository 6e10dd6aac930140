package nodestate

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Account is a user of the host.
type Account struct {
	UID, GID int
	Home     string
}

// Accounts are the users and groups of the host, by name.
type Accounts struct {
	Users  map[string]Account
	Groups map[string]int
}

func (a Accounts) uid(name string) (int, bool) {
	account, known := a.Users[name]
	return account.UID, known
}

func (a Accounts) gid(name string) (int, bool) {
	gid, known := a.Groups[name]
	return gid, known
}

// ParseAccounts reads files like /etc/passwd and /etc/group. Of a name that is there twice the
// first one counts; lines that can't be read are no accounts.
func ParseAccounts(passwd, group [][]byte) Accounts {
	a := Accounts{Users: map[string]Account{}, Groups: map[string]int{}}
	const fieldsOfUser, fieldsOfGroup = 7, 4
	for _, fields := range lines(passwd, fieldsOfUser) {
		uid, err := strconv.Atoi(fields[2])
		gid, errOfGroup := strconv.Atoi(fields[3])
		if _, known := a.Users[fields[0]]; err == nil && errOfGroup == nil && !known {
			a.Users[fields[0]] = Account{UID: uid, GID: gid, Home: fields[5]}
		}
	}
	for _, fields := range lines(group, fieldsOfGroup) {
		gid, err := strconv.Atoi(fields[2])
		if _, known := a.Groups[fields[0]]; err == nil && !known {
			a.Groups[fields[0]] = gid
		}
	}
	return a
}

// lines are the fields of all lines that have so many.
func lines(files [][]byte, count int) [][]string {
	var out [][]string
	for _, file := range files {
		for line := range strings.Lines(string(file)) {
			if fields := strings.Split(strings.TrimSpace(line), ":"); len(fields) == count && fields[0] != "" {
				out = append(out, fields)
			}
		}
	}
	return out
}

// Modes of a user's own.
const (
	privateFile      = 0o600
	privateDirectory = 0o700
)

// user wants the SSH keys and the password hash of a user. Accounts themselves are made by images.
// The keys are where the published node agent writes them.
func (r *reader) user(u *types.PasswdUser) {
	hasPassword := u.PasswordHash != nil && *u.PasswordHash != ""
	if len(u.SSHAuthorizedKeys) == 0 && !hasPassword {
		return
	}
	account, known := r.accounts.Users[u.Name]
	if !known {
		r.leave("user %s: the host does not have it; make it in the Containerfile", u.Name)
		return
	}
	if hasPassword {
		r.state.Passwords = append(r.state.Passwords, Password{User: u.Name, Hash: *u.PasswordHash})
	}
	if len(u.SSHAuthorizedKeys) == 0 {
		return
	}
	// Through a home that is a link itself, as /root is on ostree hosts.
	ssh, err := r.resolve(path.Join(account.Home, ".ssh"))
	home := path.Dir(ssh)
	if err == nil && (home == "/" || isFixed(topOf(home))) {
		err = errors.New("nothing can be written there")
	}
	if err != nil {
		r.leave("SSH keys of user %s: its home %q can't be used: %v", u.Name, account.Home, err)
		return
	}
	var keys strings.Builder
	for _, key := range u.SSHAuthorizedKeys {
		fmt.Fprintln(&keys, strings.TrimSpace(string(key)))
	}
	for _, at := range []string{home, path.Join(home, ".ssh"), path.Join(home, ".ssh/authorized_keys.d")} {
		r.put(Item{Path: at, Loose: true, Entry: Entry{Kind: Directory, Mode: privateDirectory, UID: account.UID, GID: account.GID}})
	}
	i := newFile(path.Join(home, ".ssh/authorized_keys.d/ignition"), []byte(keys.String()))
	i.Mode, i.UID, i.GID = privateFile, account.UID, account.GID
	r.put(i)
}

// hashOf is the password's hash of a user in a file like /etc/shadow; false where the user is not
// there.
func hashOf(shadow []byte, user string) (string, bool) {
	for line := range strings.Lines(string(shadow)) {
		if rest, is := strings.CutPrefix(line, user+":"); is {
			hash, _, _ := strings.Cut(strings.TrimSpace(rest), ":")
			return hash, true
		}
	}
	return "", false
}

// withHash is a file like /etc/shadow with another hash for a user, all else as it was.
func withHash(shadow []byte, user, hash string) ([]byte, error) {
	if strings.ContainsAny(user+hash, ":\n") {
		return nil, fmt.Errorf("setting the password of user %q: it is no hash that /etc/shadow can have", user)
	}
	var out bytes.Buffer
	found := false
	for line := range strings.Lines(string(shadow)) {
		rest, is := strings.CutPrefix(line, user+":")
		_, after, isWhole := strings.Cut(rest, ":")
		if !is || !isWhole || found {
			out.WriteString(line)
			continue
		}
		found = true
		out.WriteString(user + ":" + hash + ":" + after)
	}
	if !found {
		if n := out.Len(); n > 0 && out.Bytes()[n-1] != '\n' {
			out.WriteByte('\n')
		}
		out.WriteString(user + ":" + hash + ":::::::\n")
	}
	return out.Bytes(), nil
}
