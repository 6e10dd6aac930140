package deploy

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// CompileController compiles the light binary of a checkout into a folder.
func CompileController(ctx context.Context, repository, dir string) (program string, err error) {
	program = filepath.Join(dir, "layerwright")
	return program, compile(ctx, repository, "./cmd/layerwright", program)
}

// compile builds a program of the checkout as a release is built.
func compile(ctx context.Context, repository, pkg, out string) error {
	return Make(ctx, repository, "binary", "PKG="+pkg, "OUT="+out)
}

// Make runs make in a checkout. Compiling can wait; the components that start beside it should not.
func Make(ctx context.Context, repository, target string, variables ...string) error {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"make", "--no-print-directory", target}, variables...)...)
	cmd.Dir = repository
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling with make %s %s: %w\n%s", target, strings.Join(variables, " "), err, strings.TrimSpace(string(text)))
	}
	return nil
}
