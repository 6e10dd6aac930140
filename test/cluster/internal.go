package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/layerwright/layerwright/test/cluster/gateway"
	"github.com/layerwright/layerwright/test/cluster/node"
	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/cluster/stack"
)

// hostListener is the descriptor of the listener that up opened on the host.
const hostListener = 3

// internalCommand has what this program runs of itself inside a cluster.
func internalCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "internal", Short: "Parts of a running cluster", Hidden: true}
	cmd.AddCommand(gatewayCommand(), registryCommand(), nodeCommand(), machinesCommand(), guestCommand())
	return cmd
}

// inherited returns the listener that was handed over.
func inherited() (net.Listener, error) {
	f := os.NewFile(hostListener, "listener")
	if f == nil {
		return nil, errors.New("no listener was handed over: this command is for `cluster up`")
	}
	defer func() { _ = f.Close() }()
	return net.FileListener(f)
}

// ready tells the program that started this one.
func ready() error {
	_, err := sdnotify.SdNotify(true, sdnotify.SdNotifyReady)
	return err
}

func gatewayCommand() *cobra.Command {
	var nodes int
	var target string
	cmd := &cobra.Command{
		Use:  "gateway",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			listener, err := inherited()
			if err != nil {
				return err
			}
			if err := gateway.Configure(nodes); err != nil {
				return err
			}
			if err := ready(); err != nil {
				return err
			}
			return ignoreCanceled(gateway.Forward(cmd.Context(), listener, target))
		},
	}
	cmd.Flags().IntVar(&nodes, "nodes", 1, "number of node addresses")
	cmd.Flags().StringVar(&target, "target", "", "address inside that connections are carried to")
	return cmd
}

func registryCommand() *cobra.Command {
	var dir, listen, cert, key, accounts string
	cmd := &cobra.Command{
		Use:  "registry",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options := registry.Options{Dir: dir}
			text, err := os.ReadFile(accounts)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(text, &options.Accounts); err != nil {
				return fmt.Errorf("reading accounts %s: %w", accounts, err)
			}
			pair, err := tls.LoadX509KeyPair(cert, key)
			if err != nil {
				return err
			}
			host, err := inherited()
			if err != nil {
				return err
			}
			listeners := []net.Listener{host}
			if listen != "" {
				inside, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp4", listen)
				if err != nil {
					return err
				}
				listeners = append(listeners, inside)
			}
			server := &http.Server{
				Handler:           registry.New(cmd.Context(), options),
				TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
				ReadHeaderTimeout: 10 * time.Second,
			}
			return serve(cmd.Context(), server, listeners...)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "", "folder of the content")
	flags.StringVar(&listen, "listen", "", "another address to serve at, inside the cluster's network")
	flags.StringVar(&cert, "cert", "", "certificate")
	flags.StringVar(&key, "key", "", "key")
	flags.StringVar(&accounts, "accounts", "", "file with the accounts")
	return cmd
}

// serve serves TLS on all listeners until ctx ends.
func serve(ctx context.Context, server *http.Server, listeners ...net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range listeners {
		group.Go(func() error { return server.ServeTLS(l, "", "") })
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := ready(); err != nil {
		return err
	}
	if err := group.Wait(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func nodeCommand() *cobra.Command {
	var keep, cgroup string
	cmd := &cobra.Command{
		Use:  "node -- PROGRAM [ARGUMENT...]",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			cgroups, err := node.DetectCgroups()
			if err != nil {
				return err
			}
			if err := cgroups.Enter(cgroup); err != nil {
				return err
			}
			if err := node.Isolate(keep); err != nil {
				return err
			}
			path, err := exec.LookPath(args[0])
			if err != nil {
				return err
			}
			return unix.Exec(path, args, os.Environ())
		},
	}
	cmd.Flags().StringVar(&keep, "keep", "", "folder that stays visible")
	cmd.Flags().StringVar(&cgroup, "cgroup", "", "control group to enter")
	return cmd
}

func machinesCommand() *cobra.Command {
	var name, cache, repository, kubernetes string
	cmd := &cobra.Command{
		Use:  "machines",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := stack.New(repository, cache, name)
			if err != nil {
				return err
			}
			return s.RunMachines(cmd.Context(), kubernetes, cmd.OutOrStdout(), ready)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the cluster")
	cmd.Flags().StringVar(&cache, "cache", "", "folder of clusters and programs")
	cmd.Flags().StringVar(&repository, "repository", "", "the checkout")
	cmd.Flags().StringVar(&kubernetes, "kubernetes", "", "folder of Kubernetes' programs")
	cmd.Flags().Int("nodes", 0, "number of nodes; another number is another process")
	return cmd
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
