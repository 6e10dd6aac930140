package containerfiles

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// GoArch is the name that Go, OCI images and Buildah have for an architecture, such as amd64; empty
// for NoArch and unknown ones.
func GoArch(arch mcfgv1.ContainerfileArch) string {
	switch arch {
	case mcfgv1.Amd64:
		return "amd64"
	case mcfgv1.Arm64:
		return "arm64"
	case mcfgv1.Ppc:
		return "ppc64le"
	case mcfgv1.S390:
		return "s390x"
	default:
		return ""
	}
}

// PlatformArgs are the variables that Buildah sets for a build on a machine of the architecture
// that it builds for: TARGETPLATFORM, TARGETOS, TARGETARCH, TARGETVARIANT, and the same with BUILD.
// Nil where the architecture is not known.
func PlatformArgs(arch mcfgv1.ContainerfileArch) map[string]string {
	machine := GoArch(arch)
	if machine == "" {
		return nil
	}
	args := map[string]string{}
	for _, side := range []string{"TARGET", "BUILD"} {
		args[side+"PLATFORM"] = "linux/" + machine
		args[side+"OS"] = "linux"
		args[side+"ARCH"] = machine
		args[side+"VARIANT"] = ""
	}
	return args
}

// isPlatformArg is whether Buildah declares the variable before the first stage.
func isPlatformArg(name string) bool {
	side, ok := strings.CutPrefix(name, "TARGET")
	if !ok {
		side, ok = strings.CutPrefix(name, "BUILD")
	}
	return ok && slices.Contains([]string{"PLATFORM", "OS", "ARCH", "VARIANT"}, side)
}

// predefinedArgs may be used in a stage without ARG.
var predefinedArgs = []string{"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"}

// variables are those of a stage, or those before the first one, with every value that they have
// had: instructions see what was set before them, and copying all values for each instruction would
// make a file of ENV lines slow.
type variables struct {
	parent  *variables // of the stage that this one starts from, as they are at its end
	history map[string][]version
	now     int
}

// version is a value from a moment on. A variable that ARG declares without a value has hasValue
// false.
type version struct {
	since    int
	value    string
	hasValue bool
}

func newVariables(parent *variables) *variables {
	return &variables{parent: parent, history: map[string][]version{}}
}

func (v *variables) set(name string, value version) {
	v.now++
	value.since = v.now
	v.history[name] = append(v.history[name], value)
}

// view is the variables as an instruction sees them.
type view struct {
	of *variables
	at int
}

func (v *variables) view() view { return view{of: v, at: v.now} }

func (v view) find(name string) (version, bool) {
	for of, at := v.of, v.at; of != nil; {
		versions := of.history[name]
		for i := len(versions) - 1; i >= 0; i-- {
			if versions[i].since <= at {
				return versions[i], true
			}
		}
		if of = of.parent; of != nil {
			at = of.now
		}
	}
	return version{}, false
}

// Get is shell.EnvGetter's.
func (v view) Get(name string) (string, bool) {
	found, _ := v.find(name)
	return found.value, found.hasValue
}

// Keys is shell.EnvGetter's; the lexer does not call it.
func (v view) Keys() []string { return slices.Sorted(maps.Keys(v.of.history)) }

func (v view) declared(name string) bool {
	_, ok := v.find(name)
	return ok
}

var (
	errSubstitution = errors.New("${NAME-x}, ${NAME+x} and ${NAME?x} want a colon, such as ${NAME:-x}")
	errUnclosed     = errors.New("the quotes or the variables in it do not end, or are not of a form that is known")
)

// withoutColon is a substitution that BuildKit knows and Buildah refuses.
var withoutColon = regexp.MustCompile(`\$\{\w+[-+?]`)

// expansion is a word with its variables replaced, and the names of those that had no value.
type expansion struct {
	text    string
	unknown []string
}

func (v view) expand(word string) (expansion, error) {
	if !strings.ContainsAny(word, `$\"'`) {
		return expansion{text: word}, nil
	}
	if withoutColon.MatchString(word) {
		return expansion{}, errSubstitution
	}
	result, err := shell.NewLex('\\').ProcessWordWithMatches(word, v)
	if err != nil {
		return expansion{}, errUnclosed // BuildKit's text repeats the word, which may be secret
	}
	e := expansion{text: result.Result}
	for name := range result.Unmatched {
		if !strings.Contains(word, "${"+name+":") { // ${NAME:-x} needs no value
			e.unknown = append(e.unknown, name)
		}
	}
	slices.Sort(e.unknown)
	return e, nil
}

// apply is what ARG and ENV do to the variables of a stage. Defaults come from globals where ARG
// has none.
func (v *variables) apply(in *instruction, args map[string]string, globals *variables) {
	switch cmd := in.command.(type) {
	case *instructions.ArgCommand:
		for _, pair := range cmd.Args {
			v.set(pair.Key, v.declare(pair, args, globals))
		}
	case *instructions.EnvCommand:
		before := v.view() // all pairs of one ENV see the values from before it
		for _, pair := range cmd.Env {
			if value, err := before.expand(pair.Value); err == nil {
				v.set(pair.Key, version{value: value.text, hasValue: true})
			}
		}
	}
}

// declare is the value that ARG gives a variable.
func (v *variables) declare(pair instructions.KeyValuePairOptional, args map[string]string, globals *variables) version {
	if given, ok := args[pair.Key]; ok {
		return version{value: given, hasValue: true}
	}
	if pair.Value != nil {
		value, err := v.view().expand(*pair.Value)
		return version{value: value.text, hasValue: err == nil}
	}
	if globals == nil {
		return version{}
	}
	found, _ := globals.view().find(pair.Key)
	return found
}

// globals are the variables that FROM instructions see.
func (c *Containerfile) globals(args map[string]string) *variables {
	v := newVariables(nil)
	for name, value := range args {
		if isPlatformArg(name) {
			v.set(name, version{value: value, hasValue: true})
		}
	}
	for _, in := range c.instructions {
		if in.stage >= 0 {
			break
		}
		v.apply(in, args, nil)
	}
	return v
}
