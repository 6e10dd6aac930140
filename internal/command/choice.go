package command

import (
	"fmt"
	"slices"
	"strings"
)

// Choice is a flag that takes one of a few words.
type Choice struct {
	// Value is the word that was chosen, or the default.
	Value string
	// Allowed are the words to choose from.
	Allowed []string
}

// String is the word that was chosen.
func (c *Choice) String() string { return c.Value }

// Type is what --help shows as the flag's value.
func (c *Choice) Type() string { return strings.Join(c.Allowed, "|") }

// Set takes the word from the command line.
func (c *Choice) Set(value string) error {
	if !slices.Contains(c.Allowed, value) {
		last := len(c.Allowed) - 1
		return fmt.Errorf("must be %s or %s", strings.Join(c.Allowed[:last], ", "), c.Allowed[last])
	}
	c.Value = value
	return nil
}
