package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/offline"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/lint"
	"github.com/layerwright/layerwright/internal/command"
	"github.com/layerwright/layerwright/internal/manifests"
	"github.com/layerwright/layerwright/view"
)

// longestContainerfile is how long a Containerfile may be here, which an object can't hold more of.
const longestContainerfile = 1 << 20

func newLintCommand() *cobra.Command {
	output := command.Choice{Value: "text", Allowed: []string{"text", "json"}}
	cmd := &cobra.Command{
		Use:   "lint FILE...",
		Short: "Say what is wrong with Containerfiles and MachineConfigs, without a cluster or a registry",
		Long: `Checks files as the controller does before a build. Files that end in .yaml, .yml or .json, and folders of them, have objects:
MachineConfigs are checked alone and joined, those of each role together, and MachineOSConfigs with their Containerfiles. Every other file, and
- for standard input, is a Containerfile.

"layerwright render" says more, since it reads the base image.

Exit codes: 0 if nothing keeps an image from being built, 3 if something does, 1 if a file could not be read. Warnings and advice
don't fail.`,
		Example: `  layerwright lint Containerfile
  layerwright lint machineconfigs/ machineosconfig.yaml

  # As annotations of a pipeline
  layerwright lint Containerfile -o json | jq -r '.[] | "\(.line) \(.message)"'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			problems, err := lintFiles(args, cmd.InOrStdin())
			if err == nil {
				err = printProblems(cmd.OutOrStdout(), problems, output.Value)
			}
			if err != nil {
				return &failedError{err}
			}
			wrong := slices.DeleteFunc(problems, func(p lintProblem) bool { return p.Severity != lint.SeverityError })
			if len(wrong) > 0 {
				return &toMendError{len(wrong)}
			}
			return nil
		},
	}
	cmd.Flags().VarP(&output, "output", "o", "how to print: text for people, json for programs")
	return cmd
}

// lintFiles takes Containerfiles by themselves, and all objects together.
func lintFiles(files []string, stdin io.Reader) (problems []lintProblem, err error) {
	var objects []string
	for _, file := range files {
		if isOfObjects(file) {
			objects = append(objects, file)
			continue
		}
		source, err := readSource(file, stdin)
		if err != nil {
			return nil, err
		}
		problems = append(problems, lintContainerfile(source)...)
	}
	if len(objects) == 0 {
		return problems, nil
	}
	scheme, err := offline.NewScheme()
	if err != nil {
		return nil, err
	}
	set, err := (&manifests.Reader{Scheme: scheme}).Read(objects)
	if err != nil {
		return nil, err
	}
	return append(problems, lintObjects(offline.NewCluster(set))...), nil
}

// isOfObjects reports whether a file or folder has objects.
func isOfObjects(name string) bool {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return true
	}
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

func readSource(name string, stdin io.Reader) (containerfiles.Source, error) {
	source := containerfiles.Source{Arch: mcfgv1.NoArch, Name: name}
	from := stdin
	if name == manifests.Stdin {
		source.Name = "standard input"
	} else {
		file, err := os.Open(name) //nolint:gosec // the user names the file
		if err != nil {
			return source, err
		}
		defer file.Close() //nolint:errcheck // it was only read
		from = file
	}
	content, err := io.ReadAll(io.LimitReader(from, longestContainerfile+1))
	if len(content) > longestContainerfile { // its end may be what is wrong with it
		return source, fmt.Errorf("reading %q: it is longer than %d bytes, and no Containerfile that a MachineOSConfig could have", source.Name, longestContainerfile)
	}
	source.Text = string(content)
	return source, err
}

func printProblems(w io.Writer, problems []lintProblem, format string) error {
	if format == "json" {
		return printJSON(w, append([]lintProblem{}, problems...))
	}
	for _, p := range problems {
		if _, err := fmt.Fprintln(w, view.Visible(p.String())); err != nil {
			return err
		}
	}
	return nil
}
