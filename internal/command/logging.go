package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// maxVerbosity shows every request to the API server. client-go writes whole bodies from 8 on, and
// bodies may be Secrets.
const maxVerbosity = 7

// debugVerbosity is what --log-level=debug stands for: how things are done, beside what was
// changed.
const debugVerbosity = 5

const errorsOnly = -1

// verbosity is a flag: the highest logr level that is written, or errorsOnly.
type verbosity int

func (v *verbosity) String() string {
	switch *v {
	case errorsOnly:
		return "error"
	case 0:
		return "info"
	case debugVerbosity:
		return "debug"
	default:
		return strconv.Itoa(int(*v))
	}
}

// Type is what --help shows as the flag's value.
func (*verbosity) Type() string { return "level" }

// Set takes the level from the command line.
func (v *verbosity) Set(value string) error {
	switch value {
	case "error":
		*v = errorsOnly
	case "info":
		*v = 0
	case "debug":
		*v = debugVerbosity
	default:
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > maxVerbosity {
			return errors.New("must be error, info, debug or a number from 0 to 7")
		}
		*v = verbosity(n)
	}
	return nil
}

// LogOptions says what is logged and how it looks.
type LogOptions struct {
	verbosity verbosity
	format    Choice
}

// DefaultLogOptions log what was changed, as JSON.
func DefaultLogOptions() LogOptions {
	return LogOptions{format: Choice{Value: "json", Allowed: []string{"json", "text"}}}
}

// AddFlags adds the flags --log-level and --log-format.
func (o *LogOptions) AddFlags(flags *pflag.FlagSet) {
	flags.Var(&o.verbosity, "log-level",
		"what is logged: error, info (what changed and why), debug (also how), or a verbosity from 0 (info) to 7 (every API request)")
	flags.Var(&o.format, "log-format",
		"how a log line looks: json for collectors, text for people")
}

// NewLogger writes structured lines to w; slog needs no further dependency and no sampling can lose
// a line.
func (o *LogOptions) NewLogger(w io.Writer) logr.Logger {
	level := slog.Level(-o.verbosity)
	if o.verbosity == errorsOnly {
		level = slog.LevelError
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: plainLevel}
	var handler slog.Handler = slog.NewJSONHandler(w, options)
	if o.format.Value == "text" {
		handler = slog.NewTextHandler(w, options)
	}
	return logr.FromSlogHandler(handler)
}

// Install makes logger the one that controller-runtime and client-go write to. It is called once
// per process, before either runs.
func (o *LogOptions) Install(logger logr.Logger) error {
	log.SetLogger(logger)
	klog.SetLogger(logger)
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags) // klog has no other way to set what it lets through to the logger
	if err := klogFlags.Set("v", strconv.Itoa(max(0, int(o.verbosity)))); err != nil {
		return fmt.Errorf("setting the log level of client-go: %w", err)
	}
	return nil
}

// plainLevel writes a logr level as a word: slog would show V(1) as "INFO-1".
func plainLevel(groups []string, attr slog.Attr) slog.Attr {
	level, ok := attr.Value.Any().(slog.Level)
	if len(groups) > 0 || attr.Key != slog.LevelKey || !ok {
		return attr
	}
	switch {
	case level >= slog.LevelError:
		return slog.String(slog.LevelKey, "error")
	case level >= slog.LevelInfo:
		return slog.String(slog.LevelKey, "info")
	default:
		return slog.String(slog.LevelKey, "debug")
	}
}
