package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
)

func main() {
	times := flag.Int("n", 5, "how often the tests are repeated")
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: soak [-n TIMES] -- FLAGS AND PACKAGES OF go test")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := soak(ctx, *times, flag.Args(), goTest, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// runner runs go test with arguments, and writes its events.
type runner func(ctx context.Context, arguments []string, events io.Writer) error

// soak repeats the tests under load, and prints which failed, in how many runs.
func soak(ctx context.Context, times int, arguments []string, run runner, out io.Writer) error {
	defer load(ctx, runtime.NumCPU())()
	failures, seeds := map[string]int{}, map[string]string{}
	for i := range times {
		read, write := io.Pipe()
		failed := make(chan map[string]string, 1)
		go func() {
			names, err := failuresOf(read)
			_ = read.CloseWithError(err)
			failed <- names
		}()
		err := run(ctx, append([]string{"test", "-json", "-count=1", "-shuffle=on"}, arguments...), write)
		_ = write.Close()
		names := <-failed
		if exit := (*exec.ExitError)(nil); err != nil && (ctx.Err() != nil || !errors.As(err, &exit) || len(names) == 0) {
			return fmt.Errorf("run %d: %w", i+1, err)
		}
		said := fmt.Sprintf("run %d of %d: %d failures\n", i+1, times, len(names))
		for _, name := range slices.Sorted(maps.Keys(names)) {
			said += fmt.Sprintf("  %s (%s)\n", name, names[name])
			failures[name]++
			seeds[name] = names[name]
		}
		if _, err := io.WriteString(out, said); err != nil {
			return err
		}
	}
	if len(failures) == 0 {
		return nil
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		fmt.Fprintf(&text, "FAILED in %d of %d runs: %s (%s)\n", failures[name], times, name, seeds[name])
	}
	_, err := io.WriteString(out, text.String())
	return errors.Join(err, fmt.Errorf("%d tests failed", len(failures)))
}

// load keeps processors busy until it is stopped.
func load(ctx context.Context, processors int) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	for range processors {
		go func() {
			for ctx.Err() == nil {
			}
		}()
	}
	return stop
}

func goTest(ctx context.Context, arguments []string, events io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", arguments...) //nolint:gosec // arguments of the command line
	cmd.Stdout, cmd.Stderr = events, os.Stderr
	return cmd.Run()
}

// failuresOf are the tests that failed, and the packages that failed without a test of theirs, each
// with the flag that gives its order again.
func failuresOf(events io.Reader) (failed map[string]string, err error) {
	seeds, hasFailed := map[string]string{}, map[string]bool{}
	failed = map[string]string{}
	for decoder := json.NewDecoder(bufio.NewReader(events)); ; {
		var e struct{ Action, Package, Test, Output string }
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			return failed, nil
		case err != nil:
			return failed, err
		}
		switch {
		case e.Action == "output" && strings.HasPrefix(e.Output, "-test.shuffle "):
			seeds[e.Package] = strings.Replace(strings.TrimSpace(e.Output), " ", "=", 1)
		case e.Action != "fail", e.Test == "" && hasFailed[e.Package]:
		default:
			hasFailed[e.Package] = true
			failed[strings.TrimSpace(e.Package+" "+e.Test)] = seeds[e.Package]
		}
	}
}
