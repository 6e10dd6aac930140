package pools

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/streams/compare"
)

// maxJudged is the size of files that are looked at, in bytes: what a stream can't work with is in
// small ones.
const maxJudged = 1 << 20

// blocked is the error of a configuration that can't work on its stream, as a trial would say; nil
// where nothing is known to be in the way, or the pool accepts it. Of an OS image that a
// MachineConfig names the version is not known.
func blocked(in *inputs, rendered *machineconfigs.Rendered) error {
	major := streams.EnterpriseMajor(in.stream.Name)
	if major == 0 || rendered.Config.OSImageURL != string(in.stream.Images.OSImage) {
		return nil
	}
	accepted := strings.FieldsFunc(in.accepted, func(r rune) bool { return r == ',' || r == ' ' })
	move := compare.Move{
		To:     compare.Side{Stream: in.stream.Name, OSRelease: map[string]string{"PLATFORM_ID": fmt.Sprintf("platform:el%d", major)}},
		Config: configOf(rendered.Config),
	}
	var errs []error
	for _, f := range compare.ConfigBlockers(&move) {
		if slices.Contains(accepted, f.Rule) {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %s: %s on stream %q: %s: %s; or set the annotation %s: %s on the pool",
			sourceOf(in.configs, f.Place), f.Place, f.Found, in.stream.Name, f.Why, f.Fix, mcfgv1.AnnotationAcceptBlockers, f.Rule))
	}
	if len(errs) == 0 {
		return nil
	}
	return fault.NewTerminal(mcfgv1.ReasonBlockedOnStream, errors.Join(errs...))
}

// configOf is what of a configuration can be in the way.
func configOf(config *machineconfigs.Config) compare.Config {
	var out compare.Config
	for i := range config.Ignition.Storage.Files {
		file := &config.Ignition.Storage.Files[i]
		content, isRemote, err := machineconfigs.OpenContents(file.Contents)
		if err != nil || isRemote || content.Size > maxJudged {
			continue
		}
		var text bytes.Buffer
		_, _ = content.WriteTo(&text) // never fails: it was read once
		out.Files = append(out.Files, compare.File{Path: file.Path, Content: text.Bytes()})
	}
	for _, argument := range config.KernelArguments {
		out.KernelArguments = append(out.KernelArguments, compare.Argument{Text: argument})
	}
	return out
}

// sourceOf names the MachineConfigs that have a file, or a kernel argument where the place is none.
func sourceOf(configs []*mcfgv1.MachineConfig, place string) string {
	path, _, _ := strings.Cut(place, ":")
	var names []string
	for _, mc := range configs {
		config, err := machineconfigs.Parse(mc)
		if err != nil {
			continue // it was joined, so it can be parsed
		}
		hasFile := slices.ContainsFunc(config.Ignition.Storage.Files, func(f types.File) bool { return f.Path == path })
		if hasFile || path == "spec.kernelArguments" && len(config.KernelArguments) > 0 {
			names = append(names, fmt.Sprintf("MachineConfig %q", mc.Name))
		}
	}
	return strings.Join(names, " and ")
}
