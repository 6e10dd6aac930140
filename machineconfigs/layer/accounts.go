package layer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxID is the largest user or group number; the one above it means "no change" to the kernel.
const maxID = 1<<32 - 2

// accounts are the users and groups of the image.
type accounts struct {
	users, groups map[string]int
}

// readAccounts reads passwd and group in /etc, and those in /usr/lib where nss-altfiles keeps what
// comes with the image.
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

// errNoAccount means that a name is unknown.
var errNoAccount = errors.New("is not in the image below, and what passwd adds exists on nodes only: " +
	"set its number (id) instead of its name, or create it in the Containerfile")

// choose is what a configuration says about an owner, or what holds otherwise.
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
		return 0, fmt.Errorf("%q %w", *name, errNoAccount)
	}
	return found, nil
}
