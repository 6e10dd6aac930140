package main

import (
	"github.com/spf13/cobra"

	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
)

func (p *program) fixturesCommand() *cobra.Command {
	var streams []string
	cmd := &cobra.Command{
		Use:   "fixtures [tiny|bootable|full]",
		Short: "Make base OS images and push them to the cluster's registry",
		Long: `fixtures makes images that behave like CoreOS ones, from Debian's packages, and
pushes them with their extensions images and a release image that lists them:
tiny ones (busybox, a few MB, a second), bootable ones (Debian with kernel,
systemd, ostree and kubelet, for virtual machines), or full ones (a Debian root
file system and generated layers, 50 layers, 1.2 GB). What is made is cached. It prints the
pinned references.`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{string(fixtures.Tiny), string(fixtures.Bootable), string(fixtures.Full)},
		RunE: p.onStack(func(cmd *cobra.Command, s *stack.Stack, args []string) error {
			kind := fixtures.Tiny
			if len(args) > 0 {
				kind = fixtures.Kind(args[0])
			}
			wanted := make([]fixtures.Stream, 0, len(streams))
			for _, stream := range streams {
				wanted = append(wanted, fixtures.Stream(stream))
			}
			var references *fixtures.References
			printer := progress.New(cmd.ErrOrStderr())
			err := printer.Do("pushing "+string(kind)+" fixtures", func(step *progress.Step) (err error) {
				references, err = s.PushFixtures(cmd.Context(), kind, wanted, step.Detail)
				return err
			})
			printer.Close()
			if err != nil {
				return err
			}
			for _, stream := range fixtures.Streams() {
				if image, ok := references.OS[stream]; ok {
					cmd.Printf("%s\n%s\n", image, references.Extensions[stream])
				}
			}
			cmd.Println(references.Release)
			return nil
		}),
	}
	cmd.Flags().StringSliceVar(&streams, "stream", nil, "streams to make (default all: rhel9-coreos, rhel10-coreos)")
	return cmd
}
