package health

import (
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// bytesPerUnit is how many bytes of text cost one unit, as in CEL's own functions.
const bytesPerUnit = 10

// makeCollection is the name by which a list or map costs that has other elements than constants.
const makeCollection = "make"

// cost counts what calls make, for which CEL takes one unit however much it is.
type cost struct{}

// CallCost is what a call has cost; nil where CEL's own number is right.
func (cost) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	units := uint64(1)
	switch overload {
	case overloads.StartsWithString, overloads.EndsWithString, overloads.ContainsString, overloads.AddString, overloads.AddBytes:
		return nil
	}
	switch function {
	case makeCollection:
		if units = common.ListCreateBaseCost + uint64(len(args)); result.Type() == celtypes.MapType {
			units = common.MapCreateBaseCost + uint64(len(args))
		}
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return nil
	case operators.In:
		if units += size(args[1]); !isScalar(args[0]) {
			units += uint64(weigh(args[1], maxCompared)) //nolint:gosec // not negative
		}
	case operators.Equals, operators.NotEquals:
		if isScalar(args[0]) || isScalar(args[1]) {
			units += min(size(args[0]), size(args[1]))
		} else { // both were weighed
			units += uint64(weigh(args[0], maxCompared) + weigh(args[1], maxCompared)) //nolint:gosec // not negative
		}
	case overloads.Matches:
		units += uint64(steps(args[0], args[1])) / bytesPerUnit //nolint:gosec // not negative
	case operators.Add: // lists share what they were made of, and a list that grows adds one element to many
		units += min(size(args[0]), size(args[1]))
	default:
		units += size(result)
		for _, arg := range args {
			if _, isText := arg.(celtypes.String); isText || function == "join" {
				units += size(arg)
			}
		}
	}
	return &units
}

// setsCosts are what comparing sets has cost, in the place of the library's own numbers, for which
// a list in a list is one element.
func setsCosts() []interpreter.CostTrackerOption {
	var options []interpreter.CostTrackerOption
	for _, overload := range []string{"list_sets_contains_list", "list_sets_intersects_list", "list_sets_equivalent_list"} {
		options = append(options, interpreter.OverloadCostTracker(overload, func(args []ref.Val, _ ref.Val) *uint64 {
			units := 1 + 2*uint64(weigh(args[0], maxCompared)*weigh(args[1], maxCompared)) //nolint:gosec // not negative
			return &units
		}))
	}
	return options
}

// size is what a text or list costs that a call has made, its elements aside.
func size(v ref.Val) uint64 {
	switch v := v.(type) {
	case celtypes.String:
		return uint64(len(v)) / bytesPerUnit
	case celtypes.Bytes:
		return uint64(len(v)) / bytesPerUnit
	case traits.Lister:
		n, _ := v.Size().(celtypes.Int)
		return uint64(n) //nolint:gosec // not negative
	default:
		return 0
	}
}

// weigh counts what comparing a value looks at, with all that is in it, and ends at a limit. The
// same list may be in others many times, so that a value of a few bytes has more elements than
// could ever be looked at.
func weigh(v ref.Val, limit int) int {
	total := 1
	count := func(inner ref.Val) { total += weigh(inner, limit-total) }
	switch v := v.(type) {
	case celtypes.String:
		total += len(v) / bytesPerUnit
	case celtypes.Bytes:
		total += len(v) / bytesPerUnit
	case *celtypes.Optional:
		if v.HasValue() {
			count(v.GetValue())
		}
	case traits.Mapper:
		for i := v.Iterator(); total < limit && i.HasNext() == celtypes.True; {
			key := i.Next()
			count(key)
			count(v.Get(key))
		}
	case traits.Lister:
		for i := v.Iterator(); total < limit && i.HasNext() == celtypes.True; {
			count(i.Next())
		}
	}
	return total
}

// texts of errors that name what was too much.
func tooLong() ref.Val { return celtypes.NewErr("a text would be longer than %d bytes", maxText) }

func tooMany() ref.Val {
	return celtypes.NewErr("values of more than %d elements are compared", maxCompared)
}
