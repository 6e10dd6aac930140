package manifests

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
)

// holes are places in objects that an action of a template takes. An object with holes is still
// data, which kustomize builds and YAML encodes: a hole is a word that needs no quotes.
type holes struct{ actions []string }

var (
	holePattern = regexp.MustCompile(`hole-(\d+)-hole`)
	linePattern = regexp.MustCompile(`(?m)^ *- line-(\d+)-line\n`)
)

// hole is a word that the text of an action takes the place of.
func (h *holes) hole(action string) string {
	h.actions = append(h.actions, action)
	return fmt.Sprintf("hole-%d-hole", len(h.actions)-1)
}

// line is an element of a list that an action takes the place of, with its line.
func (h *holes) line(action string) string {
	h.actions = append(h.actions, "{{- "+action+" }}\n")
	return fmt.Sprintf("line-%d-line", len(h.actions)-1)
}

// fill puts the actions into the text of an object.
func (h *holes) fill(text string) string {
	for _, pattern := range []*regexp.Regexp{linePattern, holePattern} {
		text = pattern.ReplaceAllStringFunc(text, func(found string) string {
			number, _ := strconv.Atoi(pattern.FindStringSubmatch(found)[1])
			return h.actions[number]
		})
	}
	return text
}

// appendWhere appends to the lists of an object, under a condition, what changed has beyond plain.
// A change of another sort is an error, as a chart can't tell how to make it.
func (h *holes) appendWhere(condition string, object, plain, changed map[string]any) error {
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		if reflect.DeepEqual(plain[key], changed[key]) {
			continue
		}
		switch after := changed[key].(type) {
		case map[string]any:
			before, isObject := plain[key].(map[string]any)
			target, hasObject := object[key].(map[string]any)
			if !isObject || !hasObject {
				return fmt.Errorf("field %q is not in deploy/base", key)
			}
			if err := h.appendWhere(condition, target, before, after); err != nil {
				return err
			}
		case []any:
			before, _ := plain[key].([]any)
			target, _ := object[key].([]any)
			if len(after) == len(before) { // the only container
				if err := h.appendWhere(condition, target[0].(map[string]any), before[0].(map[string]any), after[0].(map[string]any)); err != nil {
					return err
				}
				continue
			}
			if len(after) < len(before) || !reflect.DeepEqual(before, after[:len(before)]) {
				return fmt.Errorf("list %q is changed otherwise than by appending", key)
			}
			target = append(target, h.line("if "+condition))
			target = append(target, after[len(before):]...)
			object[key] = append(target, h.line("end"))
		default:
			return fmt.Errorf("field %q is changed, and only lists may be appended to", key)
		}
	}
	return nil
}
