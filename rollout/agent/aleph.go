package agent

import (
	"cmp"
	"encoding/json"
	"io"
	"os"
	"path"
)

const (
	// alephPath is where a host of CoreOS says which image it was installed from.
	alephPath = "/sysroot/.coreos-aleph-version.json"
	maxAleph  = 64 << 10
	// maxVersion is how long a version may be that the Node repeats.
	maxVersion = 100
)

// bootImage is the version of the image that a host was installed from; empty where the host does
// not say it.
func bootImage(root string) string {
	file, err := os.Open(path.Join(root, alephPath)) //nolint:gosec // the folder is a setting
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxAleph))
	if err != nil {
		return ""
	}
	var is struct{ Version, Build string } // older images call it a build
	if json.Unmarshal(content, &is) != nil {
		return ""
	}
	version := cmp.Or(is.Version, is.Build)
	return version[:min(len(version), maxVersion)]
}
