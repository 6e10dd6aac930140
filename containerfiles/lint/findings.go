package lint

import (
	"fmt"
	"slices"

	"github.com/layerwright/layerwright/containerfiles"
)

// Severity says what follows from a finding.
type Severity string

// Severities of findings.
const (
	// SeverityError means that the file is not built.
	SeverityError Severity = "Error"
	// SeverityWarning means that the file is built, and most likely does not do what its author
	// wants.
	SeverityWarning Severity = "Warning"
	// SeverityAdvice means that something would be better.
	SeverityAdvice Severity = "Advice"
)

// Finding is one thing that Lint has to say about a Containerfile.
type Finding struct {
	// Line and EndLine are the first and the last line that it is about, from 1; 0 where the whole
	// file is meant.
	Line, EndLine int
	// Severity is the rule's.
	Severity Severity
	// Reason is the name of one of Rules.
	Reason string
	// Message says what is wrong here. It repeats no value that could be a secret.
	Message string
	// Fix says what to write instead.
	Fix string
}

// String is for example `line 7: Error: no stage is named "tools" (UnknownStage). Name an earlier
// stage ...`.
func (f Finding) String() string {
	text := fmt.Sprintf("%s: %s (%s). %s", f.Severity, f.Message, f.Reason, f.Fix)
	if place := f.place(); place != "" {
		return place + ": " + text
	}
	return text
}

func (f Finding) place() string {
	if f.Line == 0 {
		return ""
	}
	return fmt.Sprintf("line %d", f.Line)
}

// findingOf is an error of Parse among other findings.
func findingOf(e *containerfiles.Error) Finding {
	rule := ruleOf(e.Reason)
	return Finding{Line: e.Line, EndLine: e.EndLine, Severity: rule.Severity, Reason: e.Reason, Message: e.Err.Error(), Fix: rule.Fix}
}

// HasErrors reports whether one of the findings keeps the file from being built.
func HasErrors(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == SeverityError })
}

// Rule is a kind of finding.
type Rule struct {
	// Reason is its stable name. Rules of BuildKit's linter have BuildKit's names.
	Reason string
	// Severity is that of its findings.
	Severity Severity
	// Why says what would go wrong.
	Why string
	// Fix says what to do.
	Fix string
}

// Rules lists every kind of finding: errors first, then warnings, then advice, each by name.
func Rules() []Rule {
	all := slices.Concat(errorRules, warningRules, adviceRules)
	slices.SortStableFunc(all, compareReasons)
	return all
}

func ruleOf(reason string) Rule { return byReason[reason] }

var byReason = func() map[string]Rule {
	rules := map[string]Rule{}
	for _, r := range Rules() {
		rules[r.Reason] = r
	}
	return rules
}()

func compareReasons(a, b Rule) int {
	order := []Severity{SeverityError, SeverityWarning, SeverityAdvice}
	if d := slices.Index(order, a.Severity) - slices.Index(order, b.Severity); d != 0 {
		return d
	}
	switch {
	case a.Reason < b.Reason:
		return -1
	case a.Reason > b.Reason:
		return 1
	default:
		return 0
	}
}
