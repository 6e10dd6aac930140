package health

import (
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
)

// maxText is how long a text may get that an expression makes of others, and how long one may be
// that it splits, in bytes.
const maxText = 1 << 20

// texts are the functions of texts that expressions may call. CEL finds out what a call costs when
// it is over, and then one that makes much of little has had the controller's memory: replace, join
// and split are bounded before, indexOf takes no more than one look at each byte, and format, which
// later versions of the library have, is left out.
func texts() []cel.EnvOption {
	text, number, list := cel.StringType, cel.IntType, cel.ListType(cel.StringType)
	return []cel.EnvOption{
		ext.Strings(ext.StringsVersion(0)),
		cel.Function("replace",
			cel.MemberOverload("string_replace_string_string", []*cel.Type{text, text, text}, text, cel.FunctionBinding(replace)),
			cel.MemberOverload("string_replace_string_string_int", []*cel.Type{text, text, text, number}, text, cel.FunctionBinding(replace))),
		cel.Function("split",
			cel.MemberOverload("string_split_string", []*cel.Type{text, text}, list, cel.BinaryBinding(func(s, separator ref.Val) ref.Val {
				return split(s, separator, celtypes.IntNegOne)
			})),
			cel.MemberOverload("string_split_string_int", []*cel.Type{text, text, number}, list, cel.FunctionBinding(split))),
		cel.Function("join",
			cel.MemberOverload("list_join", []*cel.Type{list}, text, cel.UnaryBinding(func(l ref.Val) ref.Val {
				return join(l, celtypes.String(""))
			})),
			cel.MemberOverload("list_join_string", []*cel.Type{list, text}, text, cel.BinaryBinding(join))),
		cel.Function("indexOf",
			cel.MemberOverload("string_index_of_string", []*cel.Type{text, text}, number, cel.FunctionBinding(indexOf)),
			cel.MemberOverload("string_index_of_string_int", []*cel.Type{text, text, number}, number, cel.FunctionBinding(indexOf))),
		cel.Function("lastIndexOf",
			cel.MemberOverload("string_last_index_of_string", []*cel.Type{text, text}, number, cel.FunctionBinding(lastIndexOf)),
			cel.MemberOverload("string_last_index_of_string_int", []*cel.Type{text, text, number}, number, cel.FunctionBinding(lastIndexOf))),
	}
}

// replace is that of a text, what to replace, by what, and how often at most, for each where that
// is left out or negative.
func replace(args ...ref.Val) ref.Val {
	s, before, after, most := text(args[0]), text(args[1]), text(args[2]), -1
	if len(args) > 3 { //nolint:mnd // the overload with a limit
		most = number(args[3])
	}
	count := strings.Count(s, before)
	if most >= 0 {
		count = min(count, most)
	}
	if len(s)+count*(len(after)-len(before)) > maxText {
		return tooLong()
	}
	return celtypes.String(strings.Replace(s, before, after, count))
}

// split is that of a text, a separator, and how many parts there may be at most.
func split(args ...ref.Val) ref.Val {
	s := text(args[0])
	if len(s) > maxText {
		return tooLong()
	}
	return celtypes.NewStringList(celtypes.DefaultTypeAdapter, strings.SplitN(s, text(args[1]), number(args[2])))
}

func join(list, separator ref.Val) ref.Val {
	var parts []string
	total := 0
	if size(list) > maxText { // empty texts are no bytes, and take memory all the same
		return tooLong()
	}
	for i := list.(traits.Lister).Iterator(); i.HasNext() == celtypes.True; {
		part, isText := i.Next().(celtypes.String)
		if !isText {
			return celtypes.MaybeNoSuchOverloadErr(list)
		}
		parts = append(parts, string(part))
		if total += len(part) + len(text(separator)); total > maxText {
			return tooLong()
		}
	}
	return celtypes.String(strings.Join(parts, text(separator)))
}

// indexOf is the place of the first part of a text that is equal to another, from a place on where
// that is given; places count characters.
func indexOf(args ...ref.Val) ref.Val {
	s, wanted, from := text(args[0]), text(args[1]), 0
	if len(args) > 2 { //nolint:mnd // the overload with a place
		from = number(args[2])
	}
	count := utf8.RuneCountInString(s)
	switch {
	case from < 0:
		return celtypes.NewErr("index out of range: %d", from)
	case wanted == "":
		return celtypes.Int(min(from, count))
	case from >= count:
		return celtypes.IntNegOne
	}
	start := byteOf(s, from)
	at := strings.Index(s[start:], wanted)
	if at < 0 {
		return celtypes.IntNegOne
	}
	return celtypes.Int(from + utf8.RuneCountInString(s[start:start+at]))
}

// lastIndexOf is indexOf for the last part, which begins at a place or before.
func lastIndexOf(args ...ref.Val) ref.Val {
	s, wanted := text(args[0]), text(args[1])
	count := utf8.RuneCountInString(s)
	from := count
	if len(args) > 2 { //nolint:mnd // the overload with a place
		if from = number(args[2]); from >= count && wanted != "" {
			return celtypes.IntNegOne
		}
	}
	switch {
	case from < 0:
		return celtypes.NewErr("index out of range: %d", from)
	case wanted == "":
		return celtypes.Int(min(from, count))
	}
	at := strings.LastIndex(s[:min(byteOf(s, from)+len(wanted), len(s))], wanted)
	if at < 0 {
		return celtypes.IntNegOne
	}
	return celtypes.Int(utf8.RuneCountInString(s[:at]))
}

// byteOf is where a character of a text begins.
func byteOf(s string, character int) int {
	for at := range s {
		if character == 0 {
			return at
		}
		character--
	}
	return len(s)
}

// text and number are what an argument is that CEL has found to be one.
func text(v ref.Val) string { return string(v.(celtypes.String)) }

func number(v ref.Val) int { return int(v.(celtypes.Int)) }
