package containerfiles

import (
	"fmt"
	"slices"
)

// Strategy says when the configuration comes into the image, and so what a change of it costs.
type Strategy string

// Strategies of an image.
const (
	// AppendAfter means that the configuration is appended after the administrator's content: a
	// change of it costs one layer.
	AppendAfter Strategy = "AppendAfter"
	// ConfigFirst means that the administrator's content is built on base and configuration: a
	// change of it costs a build.
	ConfigFirst Strategy = "ConfigFirst"
)

// Use is a name in an instruction that stands for a stage or an image.
type Use struct {
	In   *Instruction
	Flag string // from or mount; empty for FROM
	Named
}

// StageFacts are what is known of a stage.
type StageFacts struct {
	Base     Named
	Platform string
	vars     *Variables
	Result   bool // the last stage, or one that it starts from
}

// Graph is a Containerfile with its variables expanded for one set of build arguments.
type Graph struct {
	c       *Containerfile
	args    map[string]string
	Globals *Variables
	Stages  []StageFacts
	Uses    []Use
	Views   map[*Instruction]View // the variables that an instruction sees
	resolver
}

// Resolve expands variables and follows names. It does not fail: what is wrong is in the uses.
func (c *Containerfile) Resolve(args map[string]string) *Graph {
	g := &Graph{c: c, args: args, Globals: c.globals(args), Views: map[*Instruction]View{}, resolver: newResolver(c.stages)}
	for _, in := range c.Instructions {
		if in.Stage < 0 {
			continue
		}
		if in.Keyword == "FROM" {
			g.startStage(in)
		}
		vars := g.Stages[in.Stage].vars
		g.Views[in] = vars.View()
		vars.apply(in, args, g.Globals)
		g.addSources(in)
	}
	g.markResult()
	return g
}

// startStage resolves a FROM instruction.
func (g *Graph) startStage(in *Instruction) {
	facts := StageFacts{Base: g.base(in)}
	if platform, ok := in.Value("platform"); ok {
		if p, err := g.Globals.View().Expand(platform); err == nil {
			facts.Platform = p.Text
		}
	}
	var parent *Variables
	if facts.Base.Kind == KindStage {
		parent = g.Stages[facts.Base.Stage].vars
	}
	facts.vars = newVariables(parent)
	g.Stages = append(g.Stages, facts)
	g.Uses = append(g.Uses, Use{In: in, Named: facts.Base})
}

// base is what a FROM instruction names.
func (g *Graph) base(in *Instruction) Named {
	if len(in.Args) == 0 {
		return wrong(ReasonMissingArguments, "wants the name of an image or of a stage")
	}
	globals := g.Globals.View()
	base, err := globals.Expand(in.Args[0])
	switch {
	case err != nil:
		return wrong(ReasonSubstitution, "%w", err)
	case len(base.Unknown) == 0:
		return g.from(base.Text, in.Stage)
	case globals.Declared(base.Unknown[0]):
		return wrong(ReasonEmptyBase, "the variable %s has no value: its ARG has no default, and builds pass none", base.Unknown[0])
	default:
		return wrong(ReasonUndefinedArgInFrom, "the variable %s is not declared by an ARG before the first FROM", base.Unknown[0])
	}
}

// addSources resolves what COPY and RUN take files from.
func (g *Graph) addSources(in *Instruction) {
	if from, ok := in.Value("from"); ok && in.Keyword == "COPY" {
		g.Uses = append(g.Uses, Use{In: in, Flag: "from", Named: g.source(in, from, g.copied)})
	}
	for _, m := range in.Mounts() {
		if from, ok := m.Value("from"); ok {
			g.Uses = append(g.Uses, Use{In: in, Flag: "mount", Named: g.source(in, from, g.mounted)})
		}
	}
}

func (g *Graph) source(in *Instruction, word string, resolve func(name string, at int) Named) Named {
	name, err := g.Views[in].Expand(word)
	if err != nil {
		return wrong(ReasonSubstitution, "%w", err)
	}
	if IsNumber(name.Text) && name.Text != word {
		return wrong(ReasonStageByNumber, "a variable cannot name a stage by its number")
	}
	return resolve(name.Text, in.Stage)
}

// markResult marks the stages whose content is in the image.
func (g *Graph) markResult() {
	for i := len(g.Stages) - 1; i >= 0; {
		g.Stages[i].Result = true
		if g.Stages[i].Base.Kind != KindStage {
			return
		}
		i = g.Stages[i].Base.Stage
	}
}

// Needed says of each stage whether Buildah builds it: the last one, those that it takes from, and
// so on.
func (g *Graph) Needed() []bool {
	needed := make([]bool, len(g.Stages))
	needed[len(needed)-1] = true
	for _, u := range slices.Backward(g.Uses) { // a stage takes from earlier ones alone
		if u.Kind == KindStage && needed[u.In.Stage] {
			needed[u.Stage] = true
		}
	}
	return needed
}

// Origin is what the last stage starts from, through all stages between.
func (g *Graph) Origin() Named {
	i := len(g.Stages) - 1
	for g.Stages[i].Base.Kind == KindStage {
		i = g.Stages[i].Base.Stage
	}
	return g.Stages[i].Base
}

// Strategy is the offered stage that the result starts from, and the reason in words. The stage is
// empty where there is none.
func (g *Graph) Strategy() (stage, reason string) {
	last := g.c.stages[len(g.c.stages)-1]
	origin := g.Origin()
	switch origin.Kind {
	case KindOffered:
		if g.c.fromConfigs {
			return origin.offered, "there is no FROM, which means FROM " + StageConfigs
		}
		return origin.offered, fmt.Sprintf("the last stage, on line %d, starts from %s", last.Line, origin.Text)
	case KindWrong:
		return "", fmt.Sprintf("what the last stage, on line %d, starts from is not known: %v", last.Line, origin.Err)
	default:
		return "", fmt.Sprintf("the last stage, on line %d, starts from %q", last.Line, Clip(origin.Text))
	}
}

// Strategy says which strategy the Containerfile takes with these build arguments, and why in
// words. It is empty where the last stage starts from none of the offered ones, which Lint reports.
// Without any stage there is nothing to configure first: AppendAfter.
func (c *Containerfile) Strategy(args map[string]string) (strategy Strategy, reason string) {
	if c.Empty() {
		return AppendAfter, "there is no Containerfile"
	}
	return c.Resolve(args).Chosen()
}

// Chosen is the strategy that the result takes, and the reason in words.
func (g *Graph) Chosen() (strategy Strategy, reason string) {
	stage, reason := g.Strategy()
	switch stage {
	case StageBase:
		return AppendAfter, reason
	case StageBaseWithConfigs:
		return ConfigFirst, reason
	default:
		return "", reason
	}
}
