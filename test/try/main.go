package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"

	"github.com/layerwright/layerwright/test/try/story"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "try: %s\n", err)
		os.Exit(1) //nolint:gocritic // nothing else is to be done then
	}
}

func run(ctx context.Context) error {
	if len(os.Args) != 2 { //nolint:mnd // itself and the program
		return fmt.Errorf("usage: %s LAYERWRIGHT", os.Args[0])
	}
	folder, err := os.MkdirTemp("", "layerwright-try-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // it is below the folder for temporary files
	return story.Tell(ctx, &story.Options{
		Folder: folder, Out: os.Stdout,
		Layerwright: func(ctx context.Context, out io.Writer, args ...string) error {
			cmd := exec.CommandContext(ctx, os.Args[1], args...)
			cmd.Stdout, cmd.Stderr = out, out
			return cmd.Run()
		},
	})
}
