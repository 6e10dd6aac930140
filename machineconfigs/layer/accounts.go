package layer

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// maxID is the largest user or group number; the one above it means "no change" to the kernel.
const maxID = 1<<32 - 2

// accounts are the users and groups of the image.
type accounts struct {
	users, groups map[string]int
}

// readAccounts reads passwd and group in /etc, and those in /usr/lib where nss-altfiles keeps what comes with the image.
func readAccounts(t *tree) *accounts {
	return &accounts{
		users:  readIDs(t, "/etc/passwd", "/usr/lib/passwd"),
		groups: readIDs(t, "/etc/group", "/usr/lib/group"),
	}
}

// readIDs reads name:password:number:... from files. The first entry of a name counts.
func readIDs(t *tree, files ...string) map[string]int {
	ids := map[string]int{}
	for _, file := range files {
		data, err := t.Read(file)
		if err != nil {
			continue // names that are then missing are reported where they are used
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			if len(fields) < 3 || fields[0] == "" {
				continue
			}
			id, err := strconv.ParseUint(fields[2], 10, 32)
			if _, known := ids[fields[0]]; err == nil && id <= maxID && !known {
				ids[fields[0]] = int(id)
			}
		}
	}
	return ids
}

// owner is what a configuration says about the owner of a file, with defaults for what it doesn't say.
func (a *accounts) owner(n types.Node, uid, gid int) (owner, group int, err error) {
	if uid, err = choose(n.User.ID, n.User.Name, a.users, uid); err != nil {
		return 0, 0, fmt.Errorf("user %w", err)
	}
	if gid, err = choose(n.Group.ID, n.Group.Name, a.groups, gid); err != nil {
		return 0, 0, fmt.Errorf("group %w", err)
	}
	return uid, gid, nil
}

func choose(id *int, name *string, known map[string]int, otherwise int) (int, error) {
	switch {
	case id != nil && (*id < 0 || *id > maxID):
		return 0, fmt.Errorf("%d is out of range: use 0 to %d", *id, maxID)
	case id != nil:
		return *id, nil
	case name == nil || *name == "":
		return otherwise, nil
	}
	found, ok := known[*name]
	if !ok {
		return 0, fmt.Errorf("%q is not in the image below, and what passwd adds exists on nodes only: "+
			"set its number (id) instead of its name, or create it in the Containerfile", *name)
	}
	return found, nil
}
