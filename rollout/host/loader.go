package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs/cmdline"
)

const (
	// source is the name under which bootc tracks the kernel arguments of the agent, and sourceKey
	// that of the field of a boot loader entry where it does.
	source    = "layerwright"
	sourceKey = "x-options-source-" + source
	// stagedFile has what is staged, and entriesDir what is bootable.
	stagedFile = "run/ostree/staged-deployment"
	entriesDir = "boot/loader/entries"
)

// bootLine is how what boots next is started.
type bootLine struct {
	// words are the kernel's command line, and tracked those of them that bootc tracks for the
	// agent.
	words, tracked []string
}

// readBootLine reads it from what ostree has written.
func readBootLine(root fs.FS) (*bootLine, error) {
	content, err := fs.ReadFile(root, stagedFile)
	if err == nil {
		line, err := parseStaged(content)
		if err != nil {
			return nil, fmt.Errorf("reading /%s: %w", stagedFile, err)
		}
		return line, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading what is staged: %w", err)
	}
	files, err := fs.Glob(root, path.Join(entriesDir, "ostree-*.conf"))
	if err != nil {
		return nil, fmt.Errorf("listing the boot loader's entries: %w", err)
	}
	var first *bootLine
	newest := -1
	for _, file := range files {
		if content, err = fs.ReadFile(root, file); err != nil {
			return nil, fmt.Errorf("reading an entry of the boot loader: %w", err)
		}
		if version, line := parseEntry(string(content)); version > newest {
			newest, first = version, line
		}
	}
	if first == nil {
		return nil, fmt.Errorf("the boot loader has no entry below /%s", entriesDir)
	}
	return first, nil
}

// parseEntry reads an entry of a boot loader. That with the highest version boots next.
func parseEntry(text string) (version int, line *bootLine) {
	line = &bootLine{}
	for field := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(field), " ")
		switch key {
		case "version":
			version, _ = strconv.Atoi(strings.TrimSpace(value)) // ostree writes a number
		case "options":
			line.words = withoutDeployment(cmdline.Split(value))
		case sourceKey:
			line.tracked = cmdline.Split(value)
		}
	}
	return version, line
}

// parseStaged reads what ostree writes of what is staged.
func parseStaged(content []byte) (*bootLine, error) {
	staged, err := variantDictionary(content)
	if err != nil {
		return nil, err
	}
	words, err := staged["kargs"].strings()
	if err != nil {
		return nil, err
	}
	line := &bootLine{words: withoutDeployment(words)}
	extra, has := staged["bootconfig-extra"]
	if !has {
		return line, nil
	}
	fields, err := extra.pairs()
	line.tracked = cmdline.Split(fields[sourceKey])
	return line, err
}

// withoutDeployment leaves out ostree's own word, which is another one in each deployment.
func withoutDeployment(words []string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return strings.HasPrefix(word, "ostree=") })
}

// withOptions is a command line whose tracked words bootc replaces by others: it removes all that
// are the same, and adds none that is there.
func withOptions(line, tracked, options []string) []string {
	out := slices.DeleteFunc(slices.Clone(line), func(word string) bool { return hasSame(tracked, word) })
	for _, word := range options {
		if !hasSame(out, word) {
			out = append(out, word)
		}
	}
	return out
}

// hasSame reports whether a line has what is the same word to bootc: it takes no notice of dashes
// and quotes.
func hasSame(line []string, word string) bool {
	plain := func(w string) string {
		name, value, hasValue := strings.Cut(w, "=")
		return fmt.Sprint(strings.ReplaceAll(name, "-", "_"), hasValue, strings.Trim(value, `"`))
	}
	return slices.ContainsFunc(line, func(other string) bool { return plain(other) == plain(word) })
}

// optionsFor are what bootc is to track, one after the other, so that a command line becomes
// another one; false where that can't be had so. What bootc does not track yet, as what rpm-ostree
// had set, it tracks first and then drops: it is never there twice.
func optionsFor(line *bootLine, to []string) (calls [][]string, can bool) {
	left := withOptions(line.words, line.tracked, nil)
	for kept := len(to); kept >= 0; kept-- {
		surplus := slices.DeleteFunc(slices.Clone(left), func(word string) bool { return hasSame(to[:kept], word) })
		calls = [][]string{to[kept:]}
		if len(surplus) > 0 {
			calls = [][]string{surplus, to[kept:]}
		}
		now, tracked := line.words, line.tracked
		for _, options := range calls {
			now, tracked = withOptions(now, tracked, options), options
		}
		if slices.Equal(now, to) {
			return calls, true
		}
	}
	return nil, false
}

// onlyOnce says why bootc can't make a command line, for people.
func onlyOnce(to []string) string {
	for i, word := range to {
		if hasSame(to[:i], word) {
			return fmt.Sprintf("keeps each argument once, and %s would be there twice with the same value", cmdline.Name(word))
		}
	}
	return "can't bring its kernel arguments into this order"
}

// way is how a host's kernel arguments are changed.
type way int

const (
	byLoaderEntries way = iota
	byRPMOSTree
)

// abilities are what a host has for kernel arguments.
type abilities struct{ loaderEntries, rpmOSTree bool }

// chooseWay chooses how a command line becomes another one: by what bootc tracks, where that leads
// there, and by rpm-ostree else. options are for bootc. It fails where the host can't do it.
func chooseWay(can abilities, bootcVersion version, line *bootLine, to []string) (by way, options [][]string, err error) {
	if can.loaderEntries {
		if options, leads := optionsFor(line, to); leads {
			return byLoaderEntries, options, nil
		}
	}
	switch {
	case can.rpmOSTree:
		return byRPMOSTree, nil, nil
	case can.loaderEntries:
		return 0, nil, cannot(mcfgv1.ReasonKernelArgumentsUnsupported, "its bootc %s %s, and it has no rpm-ostree; change kernelArguments", bootcVersion, onlyOnce(to))
	default:
		return 0, nil, cannot(mcfgv1.ReasonKernelArgumentsUnsupported,
			"its bootc %s can't set kernel arguments and it has no rpm-ostree; update the host, or put them into the image: /usr/lib/bootc/kargs.d", bootcVersion)
	}
}
