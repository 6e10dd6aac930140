//go:build containers_image_openpgp

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.podman.io/common/pkg/json-proxy"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
)

func main() {
	if err := newCommand().ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newCommand has the flags that containers-image-proxy passes.
func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "skopeo", SilenceErrors: true, SilenceUsage: true}
	system, anonymous, verify := &types.SystemContext{}, false, true
	proxy := &cobra.Command{
		Use:  "experimental-image-proxy",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if anonymous {
				system.DockerAuthConfig = &types.DockerAuthConfig{}
			}
			system.DockerInsecureSkipTLSVerify = types.NewOptionalBool(!verify)
			return serve(cmd.Context(), system)
		},
	}
	flags := proxy.Flags()
	flags.StringVar(&system.AuthFilePath, "authfile", "", "")
	flags.StringVar(&system.DockerCertPath, "cert-dir", "", "")
	flags.BoolVar(&anonymous, "no-creds", false, "")
	flags.BoolVar(&verify, "tls-verify", true, "")
	root.AddCommand(proxy)
	return root
}

// serve answers on standard input, which is a socket.
func serve(ctx context.Context, system *types.SystemContext) (err error) {
	manager, err := jsonproxy.NewManager(
		jsonproxy.WithSystemContext(func() (*types.SystemContext, error) { return system, nil }),
		jsonproxy.WithPolicyContext(func() (*signature.PolicyContext, error) {
			policy, err := signature.DefaultPolicy(system)
			if err != nil {
				return nil, err
			}
			return signature.NewPolicyContext(policy)
		}),
	)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Close()) }()
	return manager.Serve(ctx, 0)
}
