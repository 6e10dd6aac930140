package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/cmd/layerwright/bugreport"
	"github.com/layerwright/layerwright/cmd/layerwright/survey"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/view"
)

func newReportCommand() *cobra.Command {
	var cluster clusterFlags
	file, withContents := "", false
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Pack objects, events, logs and versions into an archive for a bug report",
		Long: `Reads the objects of Layerwright, nodes, budgets, and what is in its namespace: pods and their logs, Jobs, events. All of it goes into
an archive that only you can read. Nothing in the cluster is changed.

No Secret is read. Contents of MachineConfigs, Containerfiles, values of ConfigMaps and of environment variables, and annotations of
other programs are left out, and what URLs have of users and queries. --with-contents leaves in the first three. Logs have what RUN lines
print, and status and events the line of a build that failed: look at them before you hand it on.

It works with few rights: what it may not read is named at the end, and in lacks.txt.`,
		Example: `  layerwright report
  layerwright report --file - | tar tz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := cluster.impatient()
			if err != nil {
				return &failedError{err}
			}
			from, err := cluster.client()
			if err != nil {
				return &failedError{err}
			}
			now := clock.RealClock{}
			if file == "" {
				file = "layerwright-report-" + now.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
			}
			r := &report{config: config, from: from, namespace: *cluster.Namespace, withContents: withContents, clock: now, notes: cmd.ErrOrStderr()}
			if err := r.writeTo(cmd.Context(), file, cmd.OutOrStdout()); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&file, "file", "f", "", "file to write, or - for standard output (default: layerwright-report-<time>.tar.gz)")
	flags.BoolVar(&withContents, "with-contents", false, "leave in what MachineConfigs, Containerfiles and ConfigMaps say, which may be secret")
	cluster = newClusterFlags(cmd)
	return cmd
}

// report is one that is made.
type report struct {
	config       *rest.Config
	from         client.Reader
	namespace    string
	withContents bool
	clock        clock.PassiveClock
	notes        io.Writer
}

func (r *report) writeTo(ctx context.Context, name string, stdout io.Writer) (err error) {
	objects, err := client.New(r.config, client.Options{Mapper: bugreport.Mapper()})
	if err != nil {
		return err
	}
	pods, err := corev1client.NewForConfig(r.config)
	if err != nil {
		return err
	}
	files, err := r.own(ctx)
	if err != nil {
		return err
	}
	to := stdout
	if name != "-" {
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user names the file
		if err != nil {
			return err
		}
		defer func() {
			err = cmp.Or(err, file.Close())
			if err != nil {
				_ = os.Remove(name) // half a report is none
			}
		}()
		to = file
	}
	collector := &bugreport.Collector{
		Objects: objects, Pods: pods, Namespace: r.namespace, WithContents: r.withContents, Clock: r.clock,
		Progress: func(doing string) { _, _ = fmt.Fprintln(r.notes, view.Visible(doing)) },
	}
	lacks, err := collector.Collect(ctx, to, files)
	if err != nil {
		return err
	}
	for _, lack := range lacks {
		_, _ = fmt.Fprintln(r.notes, "layerwright: not in the report: "+view.Visible(lack))
	}
	if name != "-" {
		_, err = fmt.Fprintln(stdout, name)
	}
	return err
}

// own are the files that this program adds: its version and the cluster's, and the status. A
// cluster that does not answer at all is an error.
func (r *report) own(ctx context.Context) (map[string][]byte, error) {
	asking, err := discovery.NewDiscoveryClientForConfig(r.config)
	if err != nil {
		return nil, err
	}
	server, err := asking.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking the cluster for its version: %w", err)
	}
	versions, err := json.MarshalIndent(map[string]any{"layerwright": version.Current(), "kubernetes": server}, "", "  ")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"versions.json": append(versions, '\n')}
	read, err := survey.Read(ctx, r.from, r.namespace)
	if err != nil {
		files["status.txt"] = []byte(err.Error() + "\n")
		return files, nil //nolint:nilerr // the report says it
	}
	read.Objects.EachNode = true
	var text bytes.Buffer
	text.WriteString(strings.Join(append(read.Notes, ""), "\n"))
	err = view.Text(&text, view.Of(&read.Objects), view.Style{Health: true, Now: r.clock.Now()})
	files["status.txt"] = text.Bytes()
	return files, err
}
