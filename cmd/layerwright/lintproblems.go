package main

import (
	"errors"
	"fmt"
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/cmd/layerwright/offline"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/lint"
	"github.com/layerwright/layerwright/machineconfigs"
)

// lintProblem is something that files have wrong, or could have better.
type lintProblem struct {
	// In is the file or the object that has it.
	In string `json:"in"`
	// Line is that of a Containerfile, from 1; 0 where there is none to name.
	Line int `json:"line,omitempty"`
	// Severity is Error, Warning or Advice, as of Containerfiles.
	Severity lint.Severity `json:"severity"`
	// Reason is the rule's name, or that of the condition which a cluster would have.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Fix says what to do; empty where the message does.
	Fix string `json:"fix,omitempty"`
}

// String is the problem as compilers print one.
func (p lintProblem) String() string {
	in := p.In
	if p.Line > 0 {
		in = fmt.Sprintf("%s:%d", in, p.Line)
	}
	text := fmt.Sprintf("%s: %s: %s (%s)", in, p.Severity, p.Message, p.Reason)
	if p.Fix != "" {
		text += ". " + p.Fix
	}
	return text
}

// lintContainerfile is what can be said of one.
func lintContainerfile(source containerfiles.Source) (problems []lintProblem) {
	_, findings := lint.Check(source.Name, []byte(source.Text), lint.Options{Architecture: source.Arch, Context: source.Context})
	for _, f := range findings {
		problems = append(problems, lintProblem{In: source.Name, Line: f.Line, Severity: f.Severity, Reason: f.Reason, Message: f.Message, Fix: f.Fix})
	}
	return problems
}

// lintObjects is what can be said of objects: each MachineConfig, those of each role together, and
// the Containerfiles of MachineOSConfigs.
func lintObjects(c *offline.Cluster) (problems []lintProblem) {
	problems = lintConfigs(c)
	for _, config := range c.OSConfigs {
		in := fmt.Sprintf("MachineOSConfig %q", config.Name)
		sources, err := c.Sources(config, nil)
		if err != nil {
			problems = append(problems, lintProblem{In: in, Severity: lint.SeverityError, Reason: mcfgv1.ReasonInvalidContainerfile, Message: err.Error()})
		}
		for _, source := range sources {
			source.Name = in + ", " + source.Name
			problems = append(problems, lintContainerfile(source)...)
		}
	}
	return problems
}

func lintConfigs(c *offline.Cluster) (problems []lintProblem) {
	var pools []string
	seen := map[string]bool{}
	add := func(err error) {
		for _, one := range unjoined(err) {
			if p := problemOf(one); !seen[p.String()] { // of several pools
				seen[p.String()] = true
				problems = append(problems, p)
			}
		}
	}
	for _, config := range c.MachineConfigs {
		parsed, err := machineconfigs.Parse(config)
		if err != nil {
			add(err)
			continue
		}
		for _, warning := range parsed.Warnings {
			problems = append(problems, lintProblem{In: fmt.Sprintf("MachineConfig %q", config.Name), Severity: lint.SeverityWarning, Reason: mcfgv1.ReasonInvalidMachineConfig, Message: warning})
		}
		if role := config.Labels[mcfgv1.LabelRole]; role != "" {
			pools = append(pools, role)
		}
	}
	for _, pool := range c.Pools {
		pools = append(pools, pool.Name)
	}
	slices.Sort(pools)
	for _, pool := range slices.Compact(pools) {
		selected, err := c.Selected(pool)
		if err == nil && len(selected) > 0 {
			_, err = c.Render(pool, "")
		}
		add(err)
	}
	return problems
}

// unjoined are the errors that one is joined from.
func unjoined(err error) []error {
	var joined interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &joined):
		return joined.Unwrap()
	default:
		return []error{err}
	}
}

func problemOf(err error) lintProblem {
	p := lintProblem{In: "MachineConfigs", Severity: lint.SeverityError, Reason: mcfgv1.ReasonInvalidMachineConfig, Message: err.Error()}
	var of *machineconfigs.Error
	if errors.As(err, &of) {
		p.Reason = of.Reason
		if of.MachineConfig != "" {
			p.In = fmt.Sprintf("MachineConfig %q", of.MachineConfig)
			bare := *of
			bare.MachineConfig = ""
			p.Message = bare.Error()
		}
	}
	return p
}
