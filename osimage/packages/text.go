package packages

import (
	"bufio"
	"os"
	"strings"
)

// maxLine is the longest line of a text database that is read, and the longest text of a package's
// header, in bytes. Lists of dependencies have some kB.
const maxLine = 1 << 20

// readStatus reads files in dpkg's format: paragraphs of "Field: value", of which a package that is
// not installed any more has one too.
func readStatus(_ string, paths []string, add func(Package) error) error {
	for _, path := range paths {
		if strings.HasSuffix(path, ".md5sums") { // images without a package manager keep these beside the paragraphs
			continue
		}
		if err := eachParagraph(path, func(fields map[string]string) error {
			if p, installed := debOf(fields); installed {
				return add(p)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// debOf is the package of a paragraph, and whether it is installed: images that were put together
// without dpkg give no status.
func debOf(fields map[string]string) (Package, bool) {
	status := fields["status"]
	installed := status == "" || strings.HasSuffix(status, " installed")
	source, version, _ := strings.Cut(fields["source"], " ") // a version may follow, in parentheses
	version = strings.TrimSuffix(strings.TrimPrefix(version, "("), ")")
	return Package{
		Type: Deb, Name: fields["package"], Version: fields["version"], Arch: fields["architecture"], Source: source, SourceVersion: version,
	}, installed && fields["package"] != "" && fields["version"] != ""
}

// eachParagraph calls use with those one-line fields of each paragraph that are wanted, names in
// lower case.
func eachParagraph(path string, use func(map[string]string) error) error {
	file, err := os.Open(path) //nolint:gosec // a copy in our own folder
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	fields := map[string]string{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := lines.Text()
		if strings.TrimSpace(line) == "" {
			if err := use(fields); err != nil {
				return err
			}
			clear(fields)
			continue
		}
		name, value, isField := strings.Cut(line, ":")
		if name = strings.ToLower(name); isField && isWantedField(name) {
			fields[name] = strings.TrimSpace(value)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return use(fields)
}

// isWantedField reports whether a field of a paragraph is used. Others are not kept: of those there
// may be any number.
func isWantedField(name string) bool {
	switch name {
	case "package", "status", "version", "architecture", "source":
		return true
	default:
		return false
	}
}
