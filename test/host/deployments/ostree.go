package deployments

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Tool is how the ostree program is called: its path, and arguments before its own.
type Tool []string

// bundle is where a host has ostree whose image has none. It is not linked against what the image
// has.
const bundle = "/usr/libexec/layerwright-host"

// FindTool finds ostree on the host that this program runs on.
func FindTool() Tool {
	if tool := BundledTool(bundle, "ostree"); fileExists(tool[0]) {
		return tool
	}
	return Tool{"ostree"}
}

// BundledTool calls a program of a folder that has its libraries too.
func BundledTool(dir, program string) Tool {
	return Tool{filepath.Join(dir, "lib", "ld-linux"), "--library-path", filepath.Join(dir, "lib"), filepath.Join(dir, program)}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run runs ostree and returns what it prints. An error has what it said.
func (t Tool) run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, t[0], append(append([]string{}, t[1:]...), args...)...)
	// Translations would change what is parsed.
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "G_MESSAGES_DEBUG=")
	cmd.Stdin = stdin
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		text := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(said.String()), "error: "))
		return "", fmt.Errorf("%s: %w", text, err)
	}
	return strings.TrimRight(string(out), "\n"), nil
}
