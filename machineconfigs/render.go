package machineconfigs

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Images are the images of a pool's stream.
type Images struct {
	// OSImage and ExtensionsImage are pull specs; empty where unknown.
	OSImage, ExtensionsImage string
	// Stream is the stream's name, for messages and for marking what is rendered with its OS image;
	// empty where there is no stream.
	Stream string
	// Explicit says that spec.osImageStream of the pool, or of the worker pool on its behalf, names
	// the stream.
	Explicit bool
}

// Options are what a rendered MachineConfig depends on beside the MachineConfigs.
type Options struct {
	// Pool is the name of the MachineConfigPool; it is part of the rendered name.
	Pool   string
	Images Images
	// ControllerVersion and ReleaseVersion become annotations. They are not content: an upgrade
	// that changes nothing else gives the same name.
	ControllerVersion, ReleaseVersion string
}

// Rendered is what the MachineConfigs of a pool mean together.
type Rendered struct {
	// MachineConfig is to be written to the cluster as it is: rendered-<pool>-<hash> with its
	// annotations. Owners are the caller's.
	MachineConfig *mcfgv1.MachineConfig
	// Config is what Parse reads from MachineConfig, so that no one has to parse it again. Its
	// Warnings are those of the sources.
	Config *Config
	// Sources are the names of the MachineConfigs that it was joined from, in the order in which
	// they were joined.
	Sources []string
}

// Render joins MachineConfigs into one. They are joined in the order of their names, those with the
// role worker before all others, so that a custom pool's own MachineConfigs win over the worker's,
// and those that are for a stream after all that are not, in the same order again, so that what is
// for the stream wins over what is for all; the order of the slice means nothing. Ignition
// configurations are merged by Ignition's rules, and files that do not say otherwise overwrite what
// is there. Kernel arguments are appended, extensions united; of kernelType, osImageURL and
// baseOSExtensionsContainerImage the last one that is set wins; fips is true if any says so.
// Without MachineConfigs the result is an empty configuration with the stream's images.
//
// The name has a hash of the content and the pool's name: same content, same name, everywhere.
// Errors are one or more *Error, joined, for all MachineConfigs at once.
func Render(opts Options, configs []*mcfgv1.MachineConfig) (*Rendered, error) {
	if opts.Pool == "" {
		return nil, invalid("", "", errors.New("rendering needs the name of a pool"))
	}
	sources, err := readSources(configs)
	if err != nil {
		return nil, err
	}
	joined, found := join(sources)
	spec, moreFound := sources.joinSpec(opts.Images)
	found = append(found, moreFound...)
	found = append(found, sources.contradictions(CommandLine(joined.KernelArguments, nil).Unwanted)...)
	if err := joinErrors(found); err != nil {
		return nil, err
	}
	return sources.rendered(opts, spec, joined)
}

// source is one MachineConfig that is joined.
type source struct {
	*Config
	object *mcfgv1.MachineConfig
	// size is that of its contents, decompressed.
	size int64
}

type sources []source

// readSources parses all MachineConfigs, and sorts them in the order in which they are joined.
func readSources(configs []*mcfgv1.MachineConfig) (sources, error) {
	var (
		found []*Error
		names = map[string]bool{}
		read  = make(sources, 0, len(configs))
	)
	for _, mc := range configs {
		switch {
		case mc == nil:
			found = append(found, invalid("", "", errNoMachineConfig))
			continue
		case names[mc.Name]:
			found = append(found, invalid(mc.Name, "metadata.name", errors.New("there are two MachineConfigs with this name")))
			continue
		}
		names[mc.Name] = true
		read = append(read, source{object: mc})
	}
	if err := joinErrors(append(found, read.checkText()...)); err != nil {
		return nil, err
	}
	found = append(found, read.parse()...)
	if err := joinErrors(append(found, read.checkSize()...)); err != nil {
		return nil, err
	}
	slices.SortFunc(read, func(a, b source) int { return JoinOrder(a.object, b.object) })
	return read, nil
}

// JoinOrder compares two MachineConfigs of a pool by the order in which Render joins them: where
// both say the same thing differently, the later one wins.
func JoinOrder(a, b *mcfgv1.MachineConfig) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
}

// rank is the group of MachineConfigs that one is joined with: the lowest is joined first.
func rank(mc *mcfgv1.MachineConfig) int {
	rank := 0
	if !isWorker(mc) {
		rank++
	}
	if _, isOfStream := mc.Labels[mcfgv1.LabelOSStream]; isOfStream {
		rank += 2
	}
	return rank
}

// parse parses each on its own, and so as many at a time as there are processors: most of the time
// of Render is spent here.
func (s sources) parse() (found []*Error) {
	mistakes := make([][]*Error, len(s))
	var workers errgroup.Group
	workers.SetLimit(runtime.GOMAXPROCS(0))
	for i := range s {
		workers.Go(func() error {
			s[i].Config, s[i].size, mistakes[i] = parse(s[i].object)
			return nil
		})
	}
	_ = workers.Wait() // mistakes are collected in order
	return slices.Concat(mistakes...)
}

// maxText is how many bytes the configurations of a pool may have together, as they are written.
// Reading and joining them takes several times as much memory, and the API server stores no joined
// one of more than some MiB.
const maxText = 8 << 20

// checkText blames the MachineConfig with the longest configuration where all are too long
// together, before any is read.
func (s sources) checkText() []*Error {
	total, longest := 0, 0
	for i := range s {
		if total += len(s[i].object.Spec.Config.Raw); len(s[i].object.Spec.Config.Raw) > len(s[longest].object.Spec.Config.Raw) {
			longest = i
		}
	}
	if total <= maxText {
		return nil
	}
	return []*Error{invalid(s[longest].object.Name, "spec.config", fmt.Errorf(
		"the %d MachineConfigs of the pool have %d bytes together, and this one has most of them, %d; the limit is %d: bring large files with the Containerfile",
		len(s), total, len(s[longest].object.Spec.Config.Raw), maxText))}
}

// checkSize blames the MachineConfig with the most contents where all have too much together.
func (s sources) checkSize() []*Error {
	var total int64
	largest := -1
	for i := range s {
		if total += s[i].size; largest < 0 || s[i].size > s[largest].size {
			largest = i
		}
	}
	if total <= MaxContents {
		return nil
	}
	return []*Error{invalid(s[largest].object.Name, "spec.config.storage.files",
		fmt.Errorf("with those of the pool's other MachineConfigs, %w", errTooMuch))}
}

func isWorker(mc *mcfgv1.MachineConfig) bool {
	return mc.Labels[mcfgv1.LabelRole] == mcfgv1.PoolWorker
}

// joinSpec joins everything but spec.config.
func (s sources) joinSpec(images Images) (mcfgv1.MachineConfigSpec, []*Error) {
	// The lists are never nil: openshift/machine-config-operator writes [] too, and readers tell it
	// from null.
	spec := mcfgv1.MachineConfigSpec{KernelArguments: []string{}, Extensions: []string{}, KernelType: mcfgv1.KernelTypeDefault}
	for _, source := range s {
		from := &source.object.Spec
		spec.KernelArguments = append(spec.KernelArguments, from.KernelArguments...)
		spec.Extensions = append(spec.Extensions, from.Extensions...)
		spec.FIPS = spec.FIPS || from.FIPS
		if from.KernelType != "" {
			spec.KernelType = from.KernelType
		}
	}
	slices.Sort(spec.Extensions)
	spec.Extensions = slices.Compact(spec.Extensions)
	found := s.chooseImages(images, &spec)
	return spec, found
}

// contradictions are kernel arguments that one MachineConfig asks for and another forbids.
func (s sources) contradictions(forbidden []string) (found []*Error) {
	for _, source := range s {
		for i, argument := range source.object.Spec.KernelArguments {
			if err := contradiction(argument, forbidden); err != nil {
				found = append(found, invalid(source.Name, fmt.Sprintf("spec.kernelArguments[%d]", i), err))
			}
		}
	}
	return found
}

// rendered makes the object.
func (s sources) rendered(opts Options, spec mcfgv1.MachineConfigSpec, joined types.Config) (*Rendered, error) {
	config := &Config{
		Ignition:        joined,
		Extensions:      append([]string(nil), spec.Extensions...),
		KernelType:      spec.KernelType,
		FIPS:            spec.FIPS,
		OSImageURL:      spec.OSImageURL,
		ExtensionsImage: spec.BaseOSExtensionsContainerImage,
	}
	arguments := CommandLine(joined.KernelArguments, spec.KernelArguments)
	config.KernelArguments, config.RemoveKernelArguments = arguments.Wanted(), arguments.Unwanted
	nodeOnly := newNodeOnlyNames()
	result := &Rendered{Config: config}
	for _, source := range s {
		result.Sources = append(result.Sources, source.Name)
		config.Warnings = append(config.Warnings, source.Warnings...)
		nodeOnly.add(&source.NodeOnly)
	}
	config.NodeOnly = nodeOnly.of(&joined)
	annotations := map[string]string{
		mcfgv1.AnnotationGeneratedByControllerVersion: opts.ControllerVersion,
		mcfgv1.AnnotationReleaseImageVersion:          opts.ReleaseVersion,
	}
	list, err := encodeNodeOnly(&config.NodeOnly)
	if err != nil {
		return nil, err
	}
	if list != "" {
		annotations[mcfgv1.AnnotationNodeOnlyContent] = list
	}
	if opts.Images.Stream != "" && opts.Images.OSImage != "" && spec.OSImageURL == opts.Images.OSImage {
		annotations[mcfgv1.AnnotationOSImageStream] = opts.Images.Stream
	}
	if spec.Config.Raw, err = encodeIgnition(joined); err != nil {
		return nil, invalid("", "spec.config", err)
	}
	if config.Name, err = renderedName(opts.Pool, &spec, list); err != nil {
		return nil, invalid("", "spec", err)
	}
	result.MachineConfig = &mcfgv1.MachineConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: config.Name, Annotations: annotations},
		Spec:       spec,
	}
	return result, nil
}
