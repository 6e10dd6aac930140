package demo

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/layerwright/layerwright/test/cluster/progress"
)

const (
	// guestPatience is how long a machine may take that is emulated on a busy one.
	guestPatience = 30 * time.Minute
	// consoleEvery is how often a console is looked at that is shown.
	consoleEvery = 200 * time.Millisecond
)

// errShown ends what is shown meanwhile.
var errShown = errors.New("what it was shown for is over")

// meanwhile runs something, and shows another thing as long as that takes.
func meanwhile(ctx context.Context, show, run func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := show(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	group.Go(func() error {
		if err := run(ctx); err != nil {
			return err
		}
		return errShown
	})
	if err := group.Wait(); !errors.Is(err, errShown) {
		return err
	}
	return nil
}

// showConsole shows what the guest prints from now on, until ctx ends.
func (s *story) showConsole(ctx context.Context, step *progress.Step) (err error) {
	f, err := os.Open(s.Stack.GuestConsole(s.Guest))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	return follow(ctx, f, func(line string) { step.Line("console", line) })
}

// follow shows the lines of a file that grows.
func follow(ctx context.Context, f io.Reader, show func(line string)) error {
	ticker := time.NewTicker(consoleEvery)
	defer ticker.Stop()
	begun := ""
	for lines := bufio.NewReader(f); ; {
		text, err := lines.ReadString('\n')
		begun += text
		switch {
		case err == nil:
			if line := plain(begun); line != "" {
				show(line)
			}
			begun = ""
			continue
		case !errors.Is(err, io.EOF):
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// escapes are those of terminals: colours, and what moves the cursor.
var escapes = regexp.MustCompile(`\x1b(\[[0-9;?]*[a-zA-Z]|[^\[])|[\x00-\x08\x0b-\x1f]`)

// plain is a line of a console as text: what it is after the last escape that erases it.
func plain(line string) string {
	return strings.TrimSpace(escapes.ReplaceAllString(line, ""))
}
