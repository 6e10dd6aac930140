package daemon

import (
	"fmt"
	"time"
)

// DiedError says that a process ended by itself.
type DiedError struct {
	// Name of the process.
	Name string
	// Exit describes how it ended ("exit status 1"), when that is known.
	Exit string
	// LogFile holds what it printed; LastLines are the end of that.
	LogFile   string
	LastLines string
}

func (e *DiedError) Error() string {
	exit := e.Exit
	if exit == "" {
		exit = "its process is gone"
	}
	return fmt.Sprintf("%s died (%s); last lines of %s:\n%s", e.Name, exit, e.LogFile, e.LastLines)
}

// NotReadyError says that a process runs but was not ready in time.
type NotReadyError struct {
	Name      string
	Waited    time.Duration
	LogFile   string
	LastLines string
}

func (e *NotReadyError) Error() string {
	return fmt.Sprintf("%s was not ready after %s; last lines of %s:\n%s",
		e.Name, e.Waited.Round(time.Second), e.LogFile, e.LastLines)
}
