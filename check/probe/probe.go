package probe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/internal/registry"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
)

// Report is what a pod found.
type Report struct {
	// UserNamespace says that root of the pod is not root of the node.
	UserNamespace bool `json:"userNamespace"`
	// Push has why an image can't be pushed, by the folder with the secret; empty where it can.
	Push map[string]string `json:"push,omitempty"`
	// Reached are the addresses that were dialed, and whether someone answered.
	Reached map[string]bool `json:"reached,omitempty"`
}

// Options say what to find out.
type Options struct {
	// Push are repositories, by the folder with the push secret.
	Push map[string]string
	// Dial are addresses with a port.
	Dial []string
	// PlainHTTP are registries without TLS.
	PlainHTTP []string
	// Report is the file for the report, and Users the one that says which user of the node is the
	// pod's root.
	Report, Users string
	// Pause is between two tries to dial: network plugins need a moment to close a new pod.
	Pause time.Duration
}

const (
	// tries is how often an address is dialed that answers, or does not. The last one is believed.
	tries = 3
	// patience is how long a try takes at most, and registryPatience a registry.
	patience         = 3 * time.Second
	registryPatience = 30 * time.Second
	// maxReport is what a termination message holds, and leastRoom the fewest bytes of a trouble.
	maxReport = 4096
	leastRoom = 8
)

// Run finds out, and writes the report.
func Run(ctx context.Context, o Options) error {
	report := Report{Push: map[string]string{}, Reached: map[string]bool{}}
	var err error
	if report.UserNamespace, err = hasUserNamespace(o.Users); err != nil {
		return err
	}
	var pushes sync.WaitGroup
	var lock sync.Mutex
	for folder, repository := range o.Push {
		pushes.Go(func() {
			trouble := ""
			if err := canPush(ctx, repository, folder, o.PlainHTTP); err != nil {
				trouble = strings.Join(strings.Fields(err.Error()), " ")
			}
			lock.Lock()
			defer lock.Unlock()
			report.Push[folder] = trouble
		})
	}
	for _, address := range o.Dial {
		report.Reached[address] = reaches(ctx, address, o.Pause)
	}
	pushes.Wait()
	content, err := encode(report)
	if err != nil {
		return err
	}
	return os.WriteFile(o.Report, content, 0o600)
}

// encode cuts what can't be pushed until the report fits in a termination message: all to the same
// length, as JSON makes some longer.
func encode(report Report) ([]byte, error) {
	for room := maxReport / max(1, len(report.Push)); ; room -= max(1, room/8) {
		for folder, trouble := range report.Push {
			report.Push[folder] = strings.ToValidUTF8(trouble[:min(len(trouble), room)], "")
		}
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(report); err != nil || out.Len() <= maxReport {
			return out.Bytes(), err
		}
		if room <= leastRoom {
			return nil, fmt.Errorf("there are too many repositories for a report: %d", len(report.Push))
		}
	}
}

// hasUserNamespace reads /proc/self/uid_map: in the node's own namespace, users are who they are.
func hasUserNamespace(path string) (bool, error) {
	file, err := os.Open(path) //nolint:gosec // one of Linux
	if err != nil {
		return false, fmt.Errorf("finding out whether the pod has a user namespace: %w", err)
	}
	defer func() { _ = file.Close() }()
	var inside, outside, count int64
	if _, err := fmt.Fscan(bufio.NewReader(file), &inside, &outside, &count); err != nil {
		return false, fmt.Errorf("reading %s: %w", path, err)
	}
	return inside != outside, nil
}

func canPush(ctx context.Context, repository, folder string, plainHTTP []string) error {
	ctx, cancel := context.WithTimeout(ctx, registryPatience)
	defer cancel()
	keychain, err := dockerconfig.ReadFolder(folder)
	if err != nil {
		return err
	}
	return registry.New(registry.Options{Keychain: keychain, PlainHTTP: plainHTTP}).CanPush(ctx, repository)
}

// reaches reports whether someone answers at an address.
func reaches(ctx context.Context, address string, pause time.Duration) (reached bool) {
	for range tries {
		dialer := net.Dialer{Timeout: patience}
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if reached = err == nil; reached {
			_ = connection.Close()
		}
		select {
		case <-ctx.Done():
			return reached
		case <-clock.RealClock{}.After(pause):
		}
	}
	return reached
}

// Listen takes connections and closes them, until ctx ends.
func Listen(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	return accept(ctx, listener)
}

func accept(ctx context.Context, listener net.Listener) error {
	for {
		connection, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was to end
		case err != nil:
			return err
		}
		_, _ = io.WriteString(connection, "layerwright check\n")
		_ = connection.Close()
	}
}
