package deploy

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// FieldManager owns the fields that the playground applies.
const FieldManager = "layerwright-cluster"

// Kubectl is the program on a cluster: Bin is the folder that it is in, and Kubeconfig the path of
// the credentials.
type Kubectl struct {
	Bin, Kubeconfig string
}

// Apply applies manifests.
func (k Kubectl) Apply(ctx context.Context, manifests []byte) error {
	return k.run(ctx, manifests, "apply", "--server-side", "--force-conflicts", "--field-manager="+FieldManager, "-f", "-")
}

// Run runs a command.
func (k Kubectl) Run(ctx context.Context, args ...string) error { return k.run(ctx, nil, args...) }

func (k Kubectl) run(ctx context.Context, stdin []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(k.Bin, "kubectl"), append([]string{"--kubeconfig", k.Kubeconfig}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(filepath.Dir(k.Kubeconfig), "kubectl")) // and not in HOME
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
