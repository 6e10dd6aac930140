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

// SomeArgs are PlatformArgs, those of AMD64 where the architecture is not known.
func SomeArgs(arch mcfgv1.ContainerfileArch) map[string]string {
	if GoArch(arch) == "" {
		arch = mcfgv1.Amd64
	}
	return PlatformArgs(arch)
}

// IsPlatformArg reports whether Buildah declares the variable before the first stage.
func IsPlatformArg(name string) bool {
	side, ok := strings.CutPrefix(name, "TARGET")
	if !ok {
		side, ok = strings.CutPrefix(name, "BUILD")
	}
	return ok && slices.Contains([]string{"PLATFORM", "OS", "ARCH", "VARIANT"}, side)
}

// PredefinedArgs may be used in a stage without ARG.
var PredefinedArgs = []string{"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"}

// Variables are those of a stage, or those before the first one, with every value that they have
// had: instructions see what was set before them, and copying all values for each instruction would
// make a file of ENV lines slow.
type Variables struct {
	parent  *Variables // of the stage that this one starts from, as they are at its end
	History map[string][]version
	now     int
}

// version is a value from a moment on. A variable that ARG declares without a value has hasValue
// false.
type version struct {
	since    int
	value    string
	hasValue bool
}

func newVariables(parent *Variables) *Variables {
	return &Variables{parent: parent, History: map[string][]version{}}
}

func (v *Variables) set(name string, value version) {
	v.now++
	value.since = v.now
	v.History[name] = append(v.History[name], value)
}

// View is the variables as an instruction sees them.
type View struct {
	of *Variables
	at int
}

// View is the variables as they are now.
func (v *Variables) View() View { return View{of: v, at: v.now} }

func (v View) find(name string) (version, bool) {
	for of, at := v.of, v.at; of != nil; {
		versions := of.History[name]
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
func (v View) Get(name string) (string, bool) {
	found, _ := v.find(name)
	return found.value, found.hasValue
}

// Keys is shell.EnvGetter's; the lexer does not call it.
func (v View) Keys() []string { return slices.Sorted(maps.Keys(v.of.History)) }

// Declared reports whether a variable is known, with a value or without.
func (v View) Declared(name string) bool {
	_, ok := v.find(name)
	return ok
}

var (
	errSubstitution = errors.New("${NAME-x}, ${NAME+x} and ${NAME?x} want a colon, such as ${NAME:-x}")
	errUnclosed     = errors.New("the quotes or the variables in it do not end, or are not of a form that is known")
)

// withoutColon is a substitution that BuildKit knows and Buildah refuses.
var withoutColon = regexp.MustCompile(`\$\{\w+[-+?]`)

// Expansion is a word with its variables replaced, and the names of those that had no value.
type Expansion struct {
	Text    string
	Unknown []string
}

// Expand puts in what the variables of a word stand for.
func (v View) Expand(word string) (Expansion, error) {
	if !strings.ContainsAny(word, `$\"'`) {
		return Expansion{Text: word}, nil
	}
	if withoutColon.MatchString(word) {
		return Expansion{}, errSubstitution
	}
	result, err := shell.NewLex('\\').ProcessWordWithMatches(word, v)
	if err != nil {
		return Expansion{}, errUnclosed // BuildKit's text repeats the word, which may be secret
	}
	e := Expansion{Text: result.Result}
	for name := range result.Unmatched {
		if !strings.Contains(word, "${"+name+":") { // ${NAME:-x} needs no value
			e.Unknown = append(e.Unknown, name)
		}
	}
	slices.Sort(e.Unknown)
	return e, nil
}

// apply is what ARG and ENV do to the variables of a stage. Defaults come from globals where ARG
// has none.
func (v *Variables) apply(in *Instruction, args map[string]string, globals *Variables) {
	switch cmd := in.Command.(type) {
	case *instructions.ArgCommand:
		for _, pair := range cmd.Args {
			v.set(pair.Key, v.declare(pair, args, globals))
		}
	case *instructions.EnvCommand:
		before := v.View() // all pairs of one ENV see the values from before it
		for _, pair := range cmd.Env {
			if value, err := before.Expand(pair.Value); err == nil {
				v.set(pair.Key, version{value: value.Text, hasValue: true})
			}
		}
	}
}

// declare is the value that ARG gives a variable.
func (v *Variables) declare(pair instructions.KeyValuePairOptional, args map[string]string, globals *Variables) version {
	if given, ok := args[pair.Key]; ok {
		return version{value: given, hasValue: true}
	}
	if pair.Value != nil {
		value, err := v.View().Expand(*pair.Value)
		return version{value: value.Text, hasValue: err == nil}
	}
	if globals == nil {
		return version{}
	}
	found, _ := globals.View().find(pair.Key)
	return found
}

// globals are the variables that FROM instructions see.
func (c *Containerfile) globals(args map[string]string) *Variables {
	v := newVariables(nil)
	for name, value := range args {
		if IsPlatformArg(name) {
			v.set(name, version{value: value, hasValue: true})
		}
	}
	for _, in := range c.Instructions {
		if in.Stage >= 0 {
			break
		}
		v.apply(in, args, nil)
	}
	return v
}
