package containerfiles

import (
	"fmt"
	"slices"
)

// Strategy says when the configuration comes into the image, and so what a change of it costs.
type Strategy string

// Strategies of an image.
const (
	// AppendAfter is that the configuration is appended after the administrator's content: a change
	// of it costs one layer.
	AppendAfter Strategy = "AppendAfter"
	// ConfigFirst is that the administrator's content is built on base and configuration: a change
	// of it costs a build.
	ConfigFirst Strategy = "ConfigFirst"
)

// use is a name in an instruction that stands for a stage or an image.
type use struct {
	in   *instruction
	flag string // from or mount; empty for FROM
	named
}

// stageFacts are what is known of a stage.
type stageFacts struct {
	base     named
	platform string
	vars     *variables
	result   bool // the last stage, or one that it starts from
}

// graph is a Containerfile with its variables expanded for one set of build arguments.
type graph struct {
	c       *Containerfile
	args    map[string]string
	globals *variables
	stages  []stageFacts
	uses    []use
	views   map[*instruction]view // the variables that an instruction sees
	resolver
}

// resolve expands variables and follows names. It does not fail: what is wrong is in the uses.
func (c *Containerfile) resolve(args map[string]string) *graph {
	g := &graph{c: c, args: args, globals: c.globals(args), views: map[*instruction]view{}, resolver: newResolver(c.stages)}
	for _, in := range c.instructions {
		if in.stage < 0 {
			continue
		}
		if in.keyword == "FROM" {
			g.startStage(in)
		}
		vars := g.stages[in.stage].vars
		g.views[in] = vars.view()
		vars.apply(in, args, g.globals)
		g.addSources(in)
	}
	g.markResult()
	return g
}

// startStage resolves a FROM instruction.
func (g *graph) startStage(in *instruction) {
	facts := stageFacts{base: g.base(in)}
	if platform, ok := in.value("platform"); ok {
		if p, err := g.globals.view().expand(platform); err == nil {
			facts.platform = p.text
		}
	}
	var parent *variables
	if facts.base.kind == isStage {
		parent = g.stages[facts.base.stage].vars
	}
	facts.vars = newVariables(parent)
	g.stages = append(g.stages, facts)
	g.uses = append(g.uses, use{in: in, named: facts.base})
}

// base is what a FROM instruction names.
func (g *graph) base(in *instruction) named {
	if len(in.args) == 0 {
		return wrong(ReasonMissingArguments, "wants the name of an image or of a stage")
	}
	globals := g.globals.view()
	base, err := globals.expand(in.args[0])
	switch {
	case err != nil:
		return wrong(ReasonSubstitution, "%w", err)
	case len(base.unknown) == 0:
		return g.from(base.text, in.stage)
	case globals.declared(base.unknown[0]):
		return wrong(ReasonEmptyBase, "the variable %s has no value: its ARG has no default, and builds pass none", base.unknown[0])
	default:
		return wrong(ReasonUndefinedArgInFrom, "the variable %s is not declared by an ARG before the first FROM", base.unknown[0])
	}
}

// addSources resolves what COPY and RUN take files from.
func (g *graph) addSources(in *instruction) {
	if from, ok := in.value("from"); ok && in.keyword == "COPY" {
		g.uses = append(g.uses, use{in: in, flag: "from", named: g.source(in, from, g.copied)})
	}
	for _, m := range in.mounts() {
		if from, ok := m.value("from"); ok {
			g.uses = append(g.uses, use{in: in, flag: "mount", named: g.source(in, from, g.mounted)})
		}
	}
}

func (g *graph) source(in *instruction, word string, resolve func(name string, at int) named) named {
	name, err := g.views[in].expand(word)
	if err != nil {
		return wrong(ReasonSubstitution, "%w", err)
	}
	if isNumber(name.text) && name.text != word {
		return wrong(ReasonStageByNumber, "a variable cannot name a stage by its number")
	}
	return resolve(name.text, in.stage)
}

// markResult marks the stages whose content is in the image.
func (g *graph) markResult() {
	for i := len(g.stages) - 1; i >= 0; {
		g.stages[i].result = true
		if g.stages[i].base.kind != isStage {
			return
		}
		i = g.stages[i].base.stage
	}
}

// needed says of each stage whether Buildah builds it: the last one, those that it takes from, and
// so on.
func (g *graph) needed() []bool {
	needed := make([]bool, len(g.stages))
	needed[len(needed)-1] = true
	for _, u := range slices.Backward(g.uses) { // a stage takes from earlier ones alone
		if u.kind == isStage && needed[u.in.stage] {
			needed[u.stage] = true
		}
	}
	return needed
}

// origin is what the last stage starts from, through all stages between.
func (g *graph) origin() named {
	i := len(g.stages) - 1
	for g.stages[i].base.kind == isStage {
		i = g.stages[i].base.stage
	}
	return g.stages[i].base
}

// strategy is the offered stage that the result starts from, and the reason in words. The stage is
// empty where there is none.
func (g *graph) strategy() (stage, reason string) {
	last := g.c.stages[len(g.c.stages)-1]
	origin := g.origin()
	switch origin.kind {
	case isOffered:
		return origin.offered, fmt.Sprintf("the last stage, on line %d, starts from %s", last.Line, origin.text)
	case isWrong:
		return "", fmt.Sprintf("what the last stage, on line %d, starts from is not known: %v", last.Line, origin.err)
	default:
		return "", fmt.Sprintf("the last stage, on line %d, starts from %q", last.Line, clip(origin.text))
	}
}

// Strategy says which strategy the Containerfile takes with these build arguments, and why in
// words. It is empty where the last stage starts from none of the offered ones, which Lint reports.
// Without any stage there is nothing to configure first: AppendAfter.
func (c *Containerfile) Strategy(args map[string]string) (strategy Strategy, reason string) {
	if c.Empty() {
		return AppendAfter, "there is no Containerfile"
	}
	if len(c.stages) == 0 {
		return "", "there is no FROM"
	}
	stage, reason := c.resolve(args).strategy()
	switch stage {
	case StageBase:
		return AppendAfter, reason
	case StageBaseWithConfigs:
		return ConfigFirst, reason
	default:
		return "", reason
	}
}
