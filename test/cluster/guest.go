package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/layerwright/layerwright/test/guest"
)

// guestCommand runs a guest until it is powered off.
func guestCommand() *cobra.Command {
	return &cobra.Command{
		Use:  "guest FILE",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			machine := guest.Machine{}
			if err := json.Unmarshal(text, &machine); err != nil {
				return fmt.Errorf("reading %s: %w", args[0], err)
			}
			return ignoreCanceled(machine.Run(cmd.Context()))
		},
	}
}
