package main

import (
	"fmt"
	"slices"
	"strings"
)

// choice is a flag that takes one of a few words.
type choice struct {
	value   string
	allowed []string
}

func (c *choice) String() string { return c.value }

// Type is what --help shows as the flag's value.
func (c *choice) Type() string { return strings.Join(c.allowed, "|") }

// Set takes the word from the command line.
func (c *choice) Set(value string) error {
	if !slices.Contains(c.allowed, value) {
		last := len(c.allowed) - 1
		return fmt.Errorf("must be %s or %s", strings.Join(c.allowed[:last], ", "), c.allowed[last])
	}
	c.value = value
	return nil
}
