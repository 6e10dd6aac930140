//go:build client

package main

import "github.com/spf13/cobra"

const clusterExample = ""

// clusterCommands are none: this is the program of administrators' machines.
func clusterCommands() []*cobra.Command { return nil }
