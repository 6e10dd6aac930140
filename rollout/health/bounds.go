package health

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// Bounds of single calls. What an expression costs is known when a call is over, and nothing ends
// one that has begun.
const (
	// maxCompared is how many elements a value may have that is compared, with those of its
	// elements.
	maxCompared = 100_000
	// maxPattern is how long a regular expression may be, and maxSteps how many steps it may make:
	// it makes some for each byte of the text.
	maxPattern = 4 << 10
	maxSteps   = 2_000_000
	// maxProgram is how many instructions it may be compiled to, of about 40 bytes each.
	maxProgram = 10_000
	// compileSteps is how many steps it takes to compile an instruction.
	compileSteps = 10
)

// programOptions bound what an expression takes.
func programOptions() []cel.ProgramOption {
	return []cel.ProgramOption{
		cel.CostLimit(costLimit), cel.CostTracking(cost{}), cel.CostTrackerOptions(setsCosts()...), cel.InterruptCheckFrequency(interruptInterval),
		cel.CustomDecoratorV2(bounded), cel.OptimizeRegex(constantPattern(overloads.Matches), constantPattern(overloads.MatchesString)),
		cel.EvalOptions(cel.OptOptimize),
	}
}

// bounded puts bounded functions in the place of those that are not.
func bounded(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if made, isConstructor := i.(interpreter.InterpretableConstructor); isConstructor {
		return literal(made)
	}
	call, isCall := i.(interpreter.InterpretableCall)
	if !isCall {
		return i, nil
	}
	var do func(a, b ref.Val) ref.Val
	switch call.Function() {
	case operators.Equals:
		do = equal
	case operators.NotEquals:
		do = func(a, b ref.Val) ref.Val { return not(equal(a, b)) }
	case operators.In:
		do = func(element, list ref.Val) ref.Val { return contains(list, element) }
	case "sets.contains":
		do = compared(containsAll)
	case "sets.intersects":
		do = compared(containsAny)
	case "sets.equivalent":
		do = compared(func(a, b traits.Lister) ref.Val {
			if found := containsAll(a, b); found != celtypes.True {
				return found
			}
			return containsAll(b, a)
		})
	case overloads.Matches:
		do = matches
	default:
		return i, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		return do(args[0], args[1])
	}), nil
}

// literal has a list or map pay for its elements. CEL makes those of constants only once, with the
// expression.
func literal(made interpreter.InterpretableConstructor) (interpreter.InterpretableV2, error) {
	if made.Type() != celtypes.ListType && made.Type() != celtypes.MapType {
		return nil, fmt.Errorf("the expression makes a %s: messages are not available", made.Type().TypeName())
	}
	for _, element := range made.InitVals() {
		if _, isConstant := element.(interpreter.InterpretableConst); !isConstant {
			return collection{made}, nil
		}
	}
	return made, nil
}

// collection is a list or map that costs like a call with its elements as arguments.
type collection struct {
	interpreter.InterpretableConstructor
}

// Function implements the interface of calls whose cost is counted.
func (collection) Function() string { return makeCollection }

// OverloadID implements it too.
func (collection) OverloadID() string { return makeCollection }

// Args are what is put into the list or map.
func (c collection) Args() []interpreter.InterpretableV2 { return c.InitVals() }

// equal compares two values. That the same list is in another many times, only its weight tells.
func equal(a, b ref.Val) ref.Val {
	if isScalar(a) || isScalar(b) || weigh(a, maxCompared) < maxCompared || weigh(b, maxCompared) < maxCompared {
		return celtypes.Equal(a, b)
	}
	return tooMany()
}

func isScalar(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper, *celtypes.Optional:
		return false
	default:
		return true
	}
}

func not(v ref.Val) ref.Val {
	if b, isBool := v.(celtypes.Bool); isBool {
		return !b
	}
	return v
}

// contains is whether a list has an element, or a map a key.
func contains(list, element ref.Val) ref.Val {
	in, canContain := list.(traits.Container)
	if !canContain {
		return celtypes.MaybeNoSuchOverloadErr(list)
	}
	if _, isList := list.(traits.Lister); isList && !isScalar(element) && weigh(list, maxCompared) >= maxCompared {
		return tooMany()
	}
	return in.Contains(element)
}

// compared does something with two lists, each element of one with each of the other.
func compared(do func(a, b traits.Lister) ref.Val) func(a, b ref.Val) ref.Val {
	return func(a, b ref.Val) ref.Val {
		x, isList := a.(traits.Lister)
		y, areLists := b.(traits.Lister)
		switch {
		case !isList || !areLists:
			return celtypes.MaybeNoSuchOverloadErr(a)
		case weigh(a, maxCompared)*weigh(b, maxCompared) > maxSteps:
			return tooMany()
		default:
			return do(x, y)
		}
	}
}

func containsAll(list, of traits.Lister) ref.Val {
	for i := of.Iterator(); i.HasNext() == celtypes.True; {
		if found := list.Contains(i.Next()); found != celtypes.True {
			return found
		}
	}
	return celtypes.True
}

func containsAny(list, of traits.Lister) ref.Val {
	for i := list.Iterator(); i.HasNext() == celtypes.True; {
		if of.Contains(i.Next()) == celtypes.True {
			return celtypes.True
		}
	}
	return celtypes.False
}

// matches is whether a text matches a regular expression that is not a constant.
func matches(s, pattern ref.Val) ref.Val {
	p, isText := pattern.(celtypes.String)
	if !isText {
		return celtypes.MaybeNoSuchOverloadErr(pattern)
	}
	compiled, err := compilePattern(string(p))
	if err != nil {
		return celtypes.WrapErr(err)
	}
	return compiled.match(s)
}

// constantPattern compiles regular expressions that are constants with the expression.
func constantPattern(overload string) *interpreter.RegexOptimization {
	return &interpreter.RegexOptimization{
		Function: overloads.Matches, OverloadID: overload, RegexIndex: 1,
		Factory: func(call interpreter.InterpretableCall, text string) (interpreter.InterpretableCall, error) {
			compiled, err := compilePattern(text)
			if err != nil {
				return nil, err
			}
			return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
				return compiled.match(args[0])
			}), nil
		},
	}
}

// pattern is a regular expression, and about how many instructions it has.
type pattern struct {
	*regexp.Regexp

	instructions int
}

func compilePattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("a regular expression has more than %d bytes", maxPattern)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	p := &pattern{instructions: instructions(parsed)}
	if p.instructions > maxProgram {
		return nil, errors.New("a regular expression repeats too much: use smaller numbers of repetitions")
	}
	p.Regexp, err = regexp.Compile(text)
	return p, err
}

// instructions is about how many there are before repetitions are written out.
func instructions(re *syntax.Regexp) int {
	inner := 1
	for _, sub := range re.Sub {
		inner += instructions(sub)
	}
	switch re.Op {
	case syntax.OpRepeat:
		return inner * max(re.Min, re.Max, 1)
	case syntax.OpLiteral, syntax.OpCharClass:
		return inner + len(re.Rune)
	default:
		return inner
	}
}

// steps is about how many steps it takes to compile a regular expression and to match a text.
func steps(text, pattern ref.Val) int {
	t, isText := text.(celtypes.String)
	p, isPattern := pattern.(celtypes.String)
	if !isText || !isPattern || len(p) > maxPattern {
		return 0
	}
	parsed, err := syntax.Parse(string(p), syntax.Perl)
	if err != nil {
		return len(p)
	}
	return min((len(t)+compileSteps)*instructions(parsed), maxSteps)
}

func (p *pattern) match(s ref.Val) ref.Val {
	t, isText := s.(celtypes.String)
	if !isText {
		return celtypes.MaybeNoSuchOverloadErr(s)
	}
	if len(t)*p.instructions > maxSteps {
		return celtypes.NewErr("a text of %d bytes is too long for a regular expression of this size", len(t))
	}
	return celtypes.Bool(p.MatchString(string(t)))
}
