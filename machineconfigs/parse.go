package machineconfigs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs/cmdline"
	"github.com/layerwright/layerwright/machineconfigs/readable"
)

// Parse reads a MachineConfig, written by a person or rendered, and checks everything that can be
// checked without the image that it is for. Ignition's specifications 3.0 to 3.5 are read, and 2.2
// to 2.4 as far as they can be translated; an empty spec.config asks for nothing. Errors are one or
// more *Error with the reason InvalidMachineConfig, joined.
func Parse(mc *mcfgv1.MachineConfig) (*Config, error) {
	if mc == nil {
		return nil, invalid("", "", errNoMachineConfig)
	}
	cfg, _, found := parse(mc)
	if err := joinErrors(found); err != nil {
		return nil, err
	}
	return cfg, nil
}

// errTrimmed is a mistake of ours: without its content a MachineConfig looks as if it had none.
var errTrimmed = errors.New("the content was left out in the cache")

var errNoMachineConfig = errors.New("there is no MachineConfig")

// parse survives whatever the libraries make of a configuration that no one has thought of. Size is
// that of all contents, decompressed.
func parse(mc *mcfgv1.MachineConfig) (cfg *Config, size int64, found []*Error) {
	err := guard(func() error {
		cfg, size, found = parseUnguarded(mc)
		return nil
	})
	if err != nil {
		return nil, 0, []*Error{invalid(mc.Name, "spec.config", err)}
	}
	return cfg, size, found
}

func parseUnguarded(mc *mcfgv1.MachineConfig) (cfg *Config, size int64, found []*Error) {
	if isTrimmed(mc) {
		return nil, 0, []*Error{invalid(mc.Name, "spec.config", errTrimmed)}
	}
	reader := &ignitionReader{name: mc.Name}
	raw := mc.Spec.Config.Raw
	if raw == nil && mc.Spec.Config.Object != nil { // made by a program, not read from JSON
		var err error
		if raw, err = mc.Spec.Config.MarshalJSON(); err != nil {
			return nil, 0, []*Error{invalid(mc.Name, "spec.config", err)}
		}
	}
	cfg = &Config{Name: mc.Name, Ignition: reader.read(raw)}
	found = reader.found
	if len(found) == 0 {
		c := checker{reader: reader}
		c.check(&cfg.Ignition)
		found, size = reader.found, c.size
	}
	found = append(found, readSpec(mc, cfg)...)
	found = append(found, readNodeOnly(mc, cfg)...)
	for _, w := range reader.warnings {
		cfg.Warnings = append(cfg.Warnings, w.Error())
	}
	cfg.Warnings = append(cfg.Warnings, readable.Warnings(mc.Name, &cfg.Ignition.Storage)...)
	slices.Sort(cfg.Warnings)
	cfg.Warnings = slices.Compact(cfg.Warnings)
	return cfg, size, found
}

// readSpec reads the fields beside spec.config.
func readSpec(mc *mcfgv1.MachineConfig, cfg *Config) (found []*Error) {
	spec := &mc.Spec
	add := func(path string, err error) {
		if err != nil {
			found = append(found, invalid(mc.Name, path, err))
		}
	}
	cfg.FIPS = spec.FIPS
	cfg.OSImageURL, cfg.ExtensionsImage = mcfgv1.WithoutTag(spec.OSImageURL), mcfgv1.WithoutTag(spec.BaseOSExtensionsContainerImage)
	add("spec.osImageURL", checkPullSpec(spec.OSImageURL))
	add("spec.baseOSExtensionsContainerImage", checkPullSpec(spec.BaseOSExtensionsContainerImage))
	cfg.KernelType = spec.KernelType
	switch cfg.KernelType {
	case "":
		cfg.KernelType = mcfgv1.KernelTypeDefault
	case mcfgv1.KernelTypeDefault, mcfgv1.KernelTypeRealtime, mcfgv1.KernelType64kPages:
	default:
		add("spec.kernelType", fmt.Errorf("kernel type %q is not known; use %s, %s or %s", spec.KernelType,
			mcfgv1.KernelTypeDefault, mcfgv1.KernelTypeRealtime, mcfgv1.KernelType64kPages))
	}
	for i, name := range spec.Extensions {
		if strings.TrimSpace(name) == "" || strings.ContainsAny(name, " \t\r\n\x00") {
			add(fmt.Sprintf("spec.extensions[%d]", i), fmt.Errorf("%q is no name of an extension", name))
		}
	}
	cfg.Extensions = slices.Compact(slices.Sorted(slices.Values(spec.Extensions)))
	for i, argument := range spec.KernelArguments {
		add(fmt.Sprintf("spec.kernelArguments[%d]", i), checkKernelArgument(argument))
	}
	arguments := CommandLine(cfg.Ignition.KernelArguments, spec.KernelArguments)
	for i, argument := range spec.KernelArguments {
		add(fmt.Sprintf("spec.kernelArguments[%d]", i), contradiction(argument, arguments.Unwanted))
	}
	cfg.KernelArguments, cfg.RemoveKernelArguments = arguments.Wanted(), arguments.Unwanted
	return found
}

// CommandLine joins the two places where kernel arguments can be said.
func CommandLine(ignition types.KernelArguments, spec []string) cmdline.Arguments {
	return cmdline.Join(ignition.ShouldExist, ignition.ShouldNotExist, spec)
}

// contradiction is about an argument of which Ignition's part forbids a word.
func contradiction(argument string, forbidden []string) error {
	for _, word := range cmdline.Split(argument) {
		if slices.Contains(forbidden, word) {
			return fmt.Errorf("kernel argument %q is asked for, and spec.config.kernelArguments.shouldNotExist forbids it: remove one of the two", cmdline.Name(word))
		}
	}
	return nil
}

// checkKernelArgument names an argument without its value, which may be a password.
func checkKernelArgument(argument string) error {
	if strings.TrimSpace(argument) == "" {
		return errors.New("the kernel argument is empty: remove it")
	}
	err := cmdline.Check(argument)
	if hasControl(argument) {
		err = errors.New("has a line break or another control character")
	}
	if err != nil {
		return fmt.Errorf("kernel argument %q %w", cmdline.Name(argument), err)
	}
	return nil
}

// checkPullSpec refuses what could never be an image's name. Whether there is such an image is
// found out when it is looked up.
func checkPullSpec(image string) error {
	if strings.ContainsAny(image, " \\\"'`$") || hasControl(image) {
		return fmt.Errorf("%q is no pull spec of an image", image)
	}
	return nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
