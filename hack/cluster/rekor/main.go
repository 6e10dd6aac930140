// Command rekor is Rekor's server and the log that it writes to, Trillian, in one executable that
// behaves as what it is called by: rekor or trillian.
//
// Both are the real ones. Trillian's server and its signer are one process here, and keep the log
// in memory, one of the kinds of storage that Trillian has: no database is needed beside them. A
// log lasts as long as this process.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/trillian"
	"github.com/google/trillian/extension"
	trillianlog "github.com/google/trillian/log"
	"github.com/google/trillian/monitoring"
	"github.com/google/trillian/quota"
	"github.com/google/trillian/server"
	"github.com/google/trillian/storage"
	"github.com/google/trillian/storage/memory"
	"github.com/google/trillian/util/clock"
	"github.com/google/trillian/util/election2"
	"github.com/sigstore/rekor/cmd/rekor-server/app"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/klog/v2"
)

const (
	// integrates is how often entries that are queued are put into the tree, and batch how many at
	// once.
	integrates = 20 * time.Millisecond
	batch      = 100
	// metrics is where Rekor has its metrics, on all addresses, and without a flag for it. Where
	// the port is taken it does without.
	metrics = "127.0.0.1:2112"
)

func main() {
	ctx := context.Background()
	if filepath.Base(os.Args[0]) != "trillian" {
		taken, _ := (&net.ListenConfig{}).Listen(ctx, "tcp", metrics)
		app.Execute()
		runtime.KeepAlive(taken)
		return
	}
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on; standard output says which it is, and the tree of the log")
	flag.Parse()
	if err := serve(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve serves a new log.
func serve(ctx context.Context, address string) error {
	klog.LogToStderr(false)
	klog.SetOutputBySeverity("INFO", io.Discard)
	klog.SetOutputBySeverity("WARNING", io.Discard)
	trees := memory.NewTreeStorage()
	registry := extension.Registry{
		AdminStorage: memory.NewAdminStorage(trees), LogStorage: &once{LogStorage: memory.NewLogStorage(trees, nil), seen: map[string]*trillian.LogLeaf{}},
		ElectionFactory: election2.NoopFactory{}, QuotaManager: quota.Noop(), MetricFactory: monitoring.InertMetricFactory{},
	}
	tree, err := storage.CreateTree(ctx, registry.AdminStorage, &trillian.Tree{
		TreeState: trillian.TreeState_ACTIVE, TreeType: trillian.TreeType_LOG, MaxRootDuration: durationpb.New(0),
	})
	if err != nil {
		return fmt.Errorf("creating a tree: %w", err)
	}
	logs := server.NewTrillianLogRPCServer(registry, clock.System)
	if _, err := logs.InitLog(ctx, &trillian.InitLogRequest{LogId: tree.TreeId}); err != nil {
		return fmt.Errorf("initializing the tree: %w", err)
	}
	go trillianlog.NewOperationManager(trillianlog.OperationInfo{
		Registry: registry, BatchSize: batch, NumWorkers: 1, RunInterval: integrates, TimeSource: clock.System,
	}, trillianlog.NewSequencerManager(registry, 0)).OperationLoop(ctx)

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	programs := grpc.NewServer()
	trillian.RegisterTrillianLogServer(programs, logs)
	fmt.Printf("%s %d\n", listener.Addr(), tree.TreeId)
	return programs.Serve(listener)
}
