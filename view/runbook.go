package view

import (
	"slices"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// runbooks is the page that has a section for each alert.
const runbooks = "https://github.com/layerwright/layerwright/blob/main/docs/runbooks.md#"

// runbook is where more is said of what someone has to act upon: the section of the alert that
// fires when it stays so.
type runbook struct {
	kinds []string
	// step is empty for all that have no row before.
	step       string
	assessment Assessment
	section    string
}

var kindsOfBuilds = []string{KindConfig, KindBuild}

// runbookRows are looked up from the first on.
var runbookRows = []runbook{
	{kindsOfBuilds, mcfgv1.ReasonPushDenied, Degraded, "oclimagepushfailed"},
	{kindsOfBuilds, "", Degraded, "oclbuilddegraded"},
	{kindsOfBuilds, "", Held, "layerwrightbuildwaiting"},
	{[]string{KindImage}, stepQuarantined, Held, "layerwrightimagequarantined"},
	{[]string{KindNode}, stepNoAgent, Held, "layerwrightnodewithoutagent"},
	{[]string{KindNode}, stepUnanswered, Degraded, "layerwrightnodewithoutagent"},
	{[]string{KindNode}, stepDraining, Held, "layerwrightdrainoverdue"},
	{[]string{KindNode}, stepHalted, Degraded, "layerwrightrollouthalted"},
	{[]string{KindCondition}, mcfgv1.ReasonStreamEndOfLife, Held, "layerwrightstreamending"},
	{[]string{KindCondition}, mcfgv1.ReasonStreamRemoved, Held, "layerwrightstreamending"},
	{[]string{KindPool}, "", Held, "layerwrightpoolnotprogressing"},
	{[]string{KindPool}, "", Degraded, "layerwrightpoolnotprogressing"},
}

// addRunbooks says of items, and of those that belong to them, where more is said.
func addRunbooks(items []Item) {
	for i := range items {
		item := &items[i]
		at := slices.IndexFunc(runbookRows, func(r runbook) bool {
			return slices.Contains(r.kinds, item.Kind) && r.assessment == item.Assessment && (r.step == "" || r.step == item.Step)
		})
		if at >= 0 {
			item.Runbook = runbooks + runbookRows[at].section
		}
		addRunbooks(item.Items)
	}
}
