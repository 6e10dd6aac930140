//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// attributesOf are the extended attributes of a path, as text.
func attributesOf(path string) (string, error) {
	list, err := readAttribute(func(dest []byte) (int, error) { return unix.Llistxattr(path, dest) })
	if err != nil {
		return "", fmt.Errorf("listing attributes of %q: %w", path, err)
	}
	var text strings.Builder
	names := strings.FieldsFunc(string(list), func(r rune) bool { return r == 0 })
	for _, name := range slices.Sorted(slices.Values(names)) {
		value, err := readAttribute(func(dest []byte) (int, error) { return unix.Lgetxattr(path, name, dest) })
		if err != nil {
			return "", fmt.Errorf("reading attribute %q of %q: %w", name, path, err)
		}
		fmt.Fprintf(&text, " %s=%q", name, value)
	}
	return text.String(), nil
}

// readAttribute asks for the size, then for as much.
func readAttribute(read func([]byte) (int, error)) ([]byte, error) {
	size, err := read(nil)
	if err != nil || size == 0 {
		return nil, err
	}
	value := make([]byte, size)
	size, err = read(value)
	return value[:max(size, 0)], err
}
