package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// licenseFiles are what modules call the files that have to go with their code.
var licenseFiles = regexp.MustCompile(`(?i)^(licen[cs]e|unlicen[cs]e|copying|notice)([.-].*)?$`)

// copyOfGo is a copy of encoding/json, whose files name Go's own license and which lacks it.
const copyOfGo = "github.com/ajeddeloh/go-json"

// thirdPartyLicenses has the licenses of the modules that programs link, each text once, with the
// modules that it is of.
func thirdPartyLicenses(ctx context.Context, binaries ...string) ([]byte, error) {
	cache, err := output(ctx, "go", "env", "GOMODCACHE")
	if err != nil {
		return nil, err
	}
	root, err := output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	folders := map[string]string{"Go": root}
	for _, binary := range binaries {
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return nil, fmt.Errorf("reading which modules %q links: %w", binary, err)
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			name, err := escaped(m.Path, m.Version)
			if err != nil {
				return nil, err
			}
			folders[m.Path+" "+m.Version] = filepath.Join(cache, name)
			if m.Path == copyOfGo {
				folders[m.Path+" "+m.Version] = root
			}
		}
	}
	return licensesOf(folders)
}

// escaped is the name of a module's folder in the cache.
func escaped(path, version string) (string, error) {
	path, err := module.EscapePath(path)
	if err != nil {
		return "", err
	}
	version, err = module.EscapeVersion(version)
	return filepath.FromSlash(path) + "@" + version, err
}

// licensesOf has the licenses of modules by the folders that they are in. A module without one is
// an error: no one may copy it.
func licensesOf(folders map[string]string) ([]byte, error) {
	modules := map[string][]string{} // by text
	var missing []error
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		entries, err := os.ReadDir(folders[name])
		if err != nil {
			return nil, fmt.Errorf("reading the license of %s: %w", name, err)
		}
		found := false
		for _, entry := range entries {
			if entry.IsDir() || !licenseFiles.MatchString(entry.Name()) {
				continue
			}
			text, err := fs.ReadFile(os.DirFS(folders[name]), entry.Name())
			if err != nil {
				return nil, err
			}
			found, modules[string(text)] = true, append(modules[string(text)], name)
		}
		if !found {
			missing = append(missing, fmt.Errorf("%s has no license", name))
		}
	}
	var out bytes.Buffer
	texts := slices.SortedFunc(maps.Keys(modules), func(a, b string) int { return strings.Compare(modules[a][0]+a, modules[b][0]+b) })
	for _, text := range texts {
		fmt.Fprintf(&out, "%s\n\n%s\n%s\n\n", strings.Join(modules[text], "\n"), text, strings.Repeat("-", 100))
	}
	return out.Bytes(), errors.Join(missing...)
}
