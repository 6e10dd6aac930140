package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from here on a second signal ends the process at once
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
