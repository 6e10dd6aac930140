package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/version"
)

func newVersionCommand() *cobra.Command {
	output := command.Choice{Value: "text", Allowed: []string{"text", "json", "yaml"}}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print version, git revision, Go version and platform of this binary",
		Example: `  layerwright version
  layerwright version -o json | jq -r .revision`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := printVersion(cmd.OutOrStdout(), version.Current(), output.Value); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	cmd.Flags().VarP(&output, "output", "o", "how to print: text for people, json or yaml for programs")
	return cmd
}

func printVersion(w io.Writer, info version.Info, format string) error {
	text := fmt.Sprintf("layerwright %s\n  revision: %s\n  go:       %s\n  platform: %s\n",
		info.Version, info.Revision, info.GoVersion, info.Platform)
	var err error
	switch format {
	case "json":
		var encoded []byte
		encoded, err = json.MarshalIndent(info, "", "  ")
		text = string(encoded) + "\n"
	case "yaml":
		var encoded []byte
		encoded, err = yaml.Marshal(info)
		text = string(encoded)
	}
	if err != nil {
		return fmt.Errorf("encoding the version as %s: %w", format, err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("printing the version: %w", err)
	}
	return nil
}
