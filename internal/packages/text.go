package packages

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxLine is the longest line of a text database that is read, in bytes. Lists of dependencies have some kB.
const maxLine = 1 << 20

// readStatus reads files in dpkg's format: paragraphs of "Field: value", of which a package that is not installed any more has one too.
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

// debOf is the package of a paragraph, and whether it is installed: images that were put together without dpkg give no status.
func debOf(fields map[string]string) (Package, bool) {
	status := fields["status"]
	installed := status == "" || strings.HasSuffix(status, " installed")
	source, version, _ := strings.Cut(fields["source"], " ") // a version may follow, in parentheses
	version = strings.TrimSuffix(strings.TrimPrefix(version, "("), ")")
	return Package{
		Type: Deb, Name: fields["package"], Version: fields["version"], Arch: fields["architecture"], Source: source, SourceVersion: version,
	}, installed && fields["package"] != "" && fields["version"] != ""
}

// eachParagraph calls use with the one-line fields of each paragraph, names in lower case.
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
		if isField && line[0] != ' ' && line[0] != '\t' {
			fields[strings.ToLower(name)] = strings.TrimSpace(value)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return use(fields)
}

// readRecords reads the stand-in for an rpm database of the images that this project tests with: one file for each package, named after it, with
// name-version-release.arch in it.
func readRecords(_ string, paths []string, add func(Package) error) error {
	const maxRecord = 4096
	for _, path := range paths {
		file, err := os.Open(path) //nolint:gosec // a copy in our own folder
		if err != nil {
			return err
		}
		content, err := io.ReadAll(io.LimitReader(file, maxRecord))
		_ = file.Close()
		if err != nil {
			return err
		}
		name, nevra := filepath.Base(path), strings.TrimSpace(string(content))
		rest, isNamed := strings.CutPrefix(nevra, name+"-")
		dot := strings.LastIndex(rest, ".")
		if !isNamed || dot <= 0 {
			return fmt.Errorf("record %q: %w", name, errNoPackage)
		}
		if err := add(Package{Type: RPM, Name: name, Version: rest[:dot], Arch: rest[dot+1:]}); err != nil {
			return err
		}
	}
	return nil
}

var errNoPackage = errors.New("it does not say which package it is")
