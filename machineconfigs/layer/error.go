package layer

import (
	"fmt"
	"strings"
)

// Error is what is wrong with one item of a configuration, for the person who wrote it.
type Error struct {
	// Item names the item in words, such as `file /etc/chrony.conf`; empty where the whole
	// configuration is meant.
	Item string
	// Path is where the item is in the MachineConfig, such as `spec.config.storage.files[3]`.
	Path string
	// MachineConfig is the name of the object.
	MachineConfig string
	// Err says what is wrong and what to do about it.
	Err error
}

// Error names the object, the place in it and the item, and then what is wrong.
func (e *Error) Error() string {
	text := &strings.Builder{}
	if e.MachineConfig != "" {
		fmt.Fprintf(text, "MachineConfig %q: ", e.MachineConfig)
	}
	if e.Path != "" {
		text.WriteString(e.Path + ": ")
	}
	if e.Item != "" {
		text.WriteString(e.Item + ": ")
	}
	return text.String() + e.Err.Error()
}

// Unwrap gives what is wrong, without where.
func (e *Error) Unwrap() error { return e.Err }

// item is one item of a configuration, for messages.
type item struct {
	// words are such as "file /etc/chrony.conf", with the path as it is written.
	words string
	// at is where the item is in the MachineConfig.
	at            string
	machineConfig string
	// directory reports whether other items can be below it.
	directory bool
}

func (i *item) wrong(err error) *Error {
	return &Error{Item: i.words, Path: i.at, MachineConfig: i.machineConfig, Err: err}
}
