package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/pki"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

const (
	startTimeout = 5 * time.Minute
	stopTimeout  = 20 * time.Second
	// startAttempts bounds the tries when another process takes a port between
	// its choice and its use.
	startAttempts = 3
)

// shared is the control plane of the package under test.
var shared = struct {
	sync.Once
	dir    string
	unlock func() // of dir; a lock that nothing refers to would be released
	plane  *controlplane.Config
	config *rest.Config
	err    error
}{}

// Main runs the tests of a package and then ends the control plane, if any of
// them has asked for one. It does not return.
func Main(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "clustertest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// ControlPlane returns the configuration of a client with all rights and no
// limit of its rate.
func ControlPlane(tb testing.TB) *rest.Config {
	tb.Helper()
	shared.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), startTimeout)
		defer cancel()
		shared.err = start(ctx)
	})
	if shared.err != nil {
		tb.Fatalf("starting a control plane: %v", shared.err)
	}
	return rest.CopyConfig(shared.config)
}

// Kubeconfig returns the path of a kubeconfig file with all rights, for
// programs that take one.
func Kubeconfig(tb testing.TB) string {
	tb.Helper()
	ControlPlane(tb)
	return shared.plane.PKI.Kubeconfig(controlplane.Admin)
}

// Program returns the path of one of the programs that the control plane is
// built with, such as kubectl.
func Program(tb testing.TB, name string) string {
	tb.Helper()
	bin, err := toolchain.FindHere(tb.Context(), toolchain.Kubernetes)
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(bin, name)
}

// Namespace makes a namespace for one test, which is deleted after it.
func Namespace(tb testing.TB) string {
	tb.Helper()
	clients := kubernetes.NewForConfigOrDie(ControlPlane(tb))
	namespace, err := clients.CoreV1().Namespaces().Create(tb.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("making a namespace: %v", err)
	}
	tb.Cleanup(func() {
		// Its content is left to the namespace controller: no one waits for it.
		err := clients.CoreV1().Namespaces().Delete(context.WithoutCancel(tb.Context()), namespace.Name, metav1.DeleteOptions{})
		if err != nil {
			tb.Errorf("deleting namespace %s: %v", namespace.Name, err)
		}
	})
	return namespace.Name
}

func start(ctx context.Context) error {
	bin, err := toolchain.FindHere(ctx, toolchain.Kubernetes)
	if err != nil {
		return err
	}
	if err := removeAbandoned(); err != nil {
		return err
	}
	// Not below the cache folder, whose path may be too long for sockets.
	if shared.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return err
	}
	if shared.unlock, err = files.TryLock(filepath.Join(shared.dir, lockFile)); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := startIn(ctx, filepath.Join(shared.dir, fmt.Sprint(attempt)), bin)
		if err == nil || attempt == startAttempts || !controlplane.IsPortTaken(err) {
			return err
		}
	}
}

func startIn(ctx context.Context, dir, bin string) error {
	manager, err := daemon.New(filepath.Join(dir, "run"), filepath.Join(dir, "logs"))
	if err != nil {
		return err
	}
	store, err := pki.New(filepath.Join(dir, "pki"))
	if err != nil {
		return err
	}
	ports, err := controlplane.FreePorts()
	if err != nil {
		return err
	}
	shared.plane = &controlplane.Config{
		Cluster: "test", Bin: bin, Dir: dir, PKI: store, Manager: manager, Ports: ports, DieWithParent: true,
	}
	if err := shared.plane.EnsurePKI(); err != nil {
		return err
	}
	ctx, release := manager.Guard(ctx)
	defer release()
	config, err := shared.plane.Start(ctx)
	if err == nil {
		shared.config = config
		err = await.ServiceAccount(ctx, kubernetes.NewForConfigOrDie(config), "default", "default")
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

func stop() error {
	if shared.dir == "" {
		return nil
	}
	var err error
	if shared.plane != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		err = shared.plane.Stop(ctx)
	}
	err = errors.Join(err, os.RemoveAll(shared.dir))
	if shared.unlock != nil {
		shared.unlock()
	}
	return err
}

const (
	dirPrefix = "lw-test-"
	lockFile  = "lock"
)

// removeAbandoned deletes the folders of test programs that were killed. Their
// processes have died with them.
func removeAbandoned() error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, lockFile)); err != nil {
			continue // just being made
		}
		unlock, err := files.TryLock(filepath.Join(dir, lockFile))
		if err != nil {
			continue // in use, or another user's
		}
		err = os.RemoveAll(dir)
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
