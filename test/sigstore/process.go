package sigstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/layerwright/layerwright/test/cluster/freeport"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// startTime is how long a program may take to start.
const startTime = time.Minute

// process is a program that runs until it is stopped, at the latest when the test ends.
type process struct {
	name  string
	ended chan struct{}
	stop  func()
}

// start starts a program. What it says is shown if the test fails.
func start(tb testing.TB, name string, argv []string) *process {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	said := &output{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p := &process{name: name, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	p.stop = func() {
		cancel()
		<-p.ended
	}
	tb.Cleanup(func() {
		if p.stop(); tb.Failed() {
			tb.Logf("%s:\n%s", name, said)
		}
	})
	return p
}

// wait tries until something works, as long as the program has not ended.
func (p *process) wait(tb testing.TB, try func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTime)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-p.ended:
			tb.Fatalf("%s ended", p.name)
		case <-ctx.Done():
			tb.Fatalf("%s did not start: %v", p.name, err)
		}
	}
}

// output is what a program says, for readers beside it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// get is the content of a page.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", url, response.Status, text)
	}
	return text, err
}

// find is a program of a set that `make tools` has built.
func find(tb testing.TB, set toolchain.Set, program string) string {
	tb.Helper()
	bin, err := toolchain.FindHere(tb.Context(), set)
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(bin, program)
}

func listen(ctx context.Context) (net.Listener, error) {
	return freeport.Listen(ctx, "127.0.0.1")
}

// freePort is one that nothing listens on, where listen does, and the host that is.
func freePort(tb testing.TB, listen func(context.Context) (net.Listener, error)) (host, port string) {
	tb.Helper()
	listener, err := listen(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if host, port, err = net.SplitHostPort(listener.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		tb.Fatal(err)
	}
	return host, port
}
