package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/words"
)

// Steps of nodes that a MachineConfigNode says more about.
const (
	stepDraining  = "draining"
	stepRebooting = "rebooting"
	stepStaging   = "staging"
	stepUpdated   = "updated"
)

// Steps that have a runbook.
const (
	stepUnanswered  = "not answering"
	stepNoAgent     = "without agent"
	stepHalted      = "halted"
	stepQuarantined = "in quarantine"
)

// meaning is what a reason means to who reads it.
type meaning struct {
	// begins are the texts that the reason has, and has another one that is in it.
	begins     []string
	has        string
	step       string
	assessment Assessment
	next       Actor
	command    func(*subject) string
	// issue is its name before a rollout; empty where it goes on by itself.
	issue string
}

// subject is what a reason is about.
type subject struct{ node, pool, namespace, reason string }

// meanings are the rows of "What it waits for" of docs/rollout.md. The first that fits is taken.
var meanings = []meaning{
	{[]string{words.Unanswered}, "", stepUnanswered, Degraded, You, agentPods, IssueAgentMissing},
	{[]string{words.CannotGoOn}, "", "failing", Degraded, You, report, IssueNodeFailed},
	{[]string{words.NoAgent}, "", stepNoAgent, Held, You, agentPods, IssueAgentMissing},
	{[]string{words.Told}, "", "told to change", Progressing, Agent, agentPods, ""},
	{[]string{words.Draining}, words.BlockedBy, stepDraining, Held, You, budget, IssueDrainBlocked},
	{[]string{words.Draining}, words.KubeletAway, stepDraining, Held, You, describeNode, IssueNodeNotReady},
	{[]string{words.Draining}, words.NotReady, stepDraining, Held, You, describeNode, IssueNodeNotReady},
	{[]string{words.Draining}, words.EndsUntil, stepDraining, Progressing, Others, nil, ""},
	{[]string{words.Draining}, "", stepDraining, Progressing, Controller, nil, ""},
	{[]string{words.Rebooting}, "", stepRebooting, Progressing, Agent, nil, ""},
	{[]string{words.Changing, words.Finishes, words.GoesBack}, "", "changing", Progressing, Agent, nil, ""},
	{[]string{words.StageFailed}, "", stepStaging, Degraded, You, report, IssueNodeFailed},
	{[]string{words.HostCannot}, "", "host unsuitable", Held, You, report, IssueHostUnsuitable},
	{[]string{words.HostWaits}, "", stepStaging, Waiting, Controller, report, ""},
	{[]string{words.Stages}, "", stepStaging, Progressing, Agent, nil, ""},
	{[]string{words.UpdateFailed, words.Degraded, words.Failed, words.StuckBack}, "", "failed", Degraded, You, report, IssueNodeFailed},
	{[]string{words.WentBack}, "", "went back", Degraded, You, report, IssueNodeFailed},
	{[]string{words.Halted}, "", stepHalted, Degraded, You, resume, IssueHalted},
	{[]string{words.NotReadyYet}, "", "becoming healthy", Progressing, Others, describeNode, ""},
	{[]string{words.NotHealthyYet}, "", "becoming healthy", Progressing, Others, nil, IssueAlertFires},
	{[]string{words.NotJudged, words.WaitsForHealthCheck}, "", "can't be judged", Held, You, describePool, IssueAlertFires},
	{[]string{words.NotReady, words.DiskPressure}, "", "unavailable", Held, You, describeNode, IssueNodeNotReady},
	{[]string{words.Cordoned}, "", "cordoned", Held, You, uncordon, IssueNodeCordoned},
	{[]string{words.Deleting}, "", "being deleted", Waiting, Others, nil, ""},
	{[]string{words.Paused}, "", "paused", Held, You, resume, IssuePaused},
	{[]string{words.EtcdMajority}, "", "kept for etcd", Held, You, describePool, IssueNodeNotReady},
	{[]string{words.OneAtATime}, "", "one at a time", Waiting, Others, nil, ""},
	{[]string{words.WaitsForSlot}, "", "without slot", Waiting, Others, nil, ""},
	{[]string{words.WaitsForCanaries}, "", "after the canaries", Waiting, Others, nil, ""},
	{[]string{words.WaitsForBatch}, "", "after another batch", Waiting, Others, nil, ""},
	{[]string{words.WaitsForProof, words.WaitsToStage}, "", "after other nodes", Waiting, Others, nil, ""},
	{[]string{words.WaitsForPool}, "", "after another pool", Waiting, Others, otherPool, ""},
	{[]string{words.WaitsForWindow}, "", "outside of windows", Waiting, Clock, ignoreWindows, ""},
	{[]string{words.NoCanaries}, "", "after the canaries", Held, You, describePool, IssueInvalidRollout},
	{[]string{words.NoWindow}, "", "outside of windows", Held, You, describePool, IssueInvalidRollout},
	{[]string{words.WaitsForImage}, "", "without image", Waiting, Controller, nil, IssueImageNotReady},
	{[]string{words.Check}, "is in quarantine", "image in quarantine", Held, You, resume, IssueQuarantined},
	{[]string{words.Check + "Ready: "}, "", "image not ready", Waiting, Controller, images, IssueImageNotReady},
	{[]string{words.Check}, "", "image does not fit", Held, You, images, IssueImageNotReady},
}

// meaningOf is what a reason means. One that no row has is shown all the same.
func meaningOf(reason string) *meaning {
	for i := range meanings {
		m := &meanings[i]
		if words.HasText(reason, m.begins...) && strings.Contains(reason, m.has) {
			return m
		}
	}
	return &meaning{step: "not updated yet", assessment: Waiting, next: Controller}
}

func (m *meaning) commandFor(s *subject) string {
	if m.command == nil {
		return ""
	}
	return m.command(s)
}

func agentPods(s *subject) string {
	return safe("kubectl -n %s get pods -l app.kubernetes.io/component=agent -o wide", s.namespace)
}

func report(s *subject) string { return safe("kubectl get machineconfignode %s -o yaml", s.node) }

func describeNode(s *subject) string { return safe("kubectl describe node %s", s.node) }

func describePool(s *subject) string { return safe("kubectl describe mcp %s", s.pool) }

func uncordon(s *subject) string { return safe("kubectl uncordon %s", s.node) }

func resume(s *subject) string {
	return safe("layerwright rollout %s --resume", s.pool)
}

func ignoreWindows(s *subject) string {
	return safe("layerwright rollout %s --ignore-windows REASON", s.pool)
}

func images(*subject) string { return "kubectl get mosi" }

func otherPool(s *subject) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(s.reason, words.WaitsForPool), ":")
	return safe("kubectl get mcp %s -o jsonpath='{.status.rollout.summary}'", name)
}

// blockedByBudget finds the namespace of a pod, and the budget that keeps it.
var blockedByBudget = regexp.MustCompile(`pod ([^ /]+)/[^ ]+` + words.BlockedBy + words.ByBudget + `([^ ]+)`)

// budget shows the budget that blocks a drain, or else what the drain controller says of it.
func budget(s *subject) string {
	if found := blockedByBudget.FindStringSubmatch(s.reason); found != nil {
		return safe("kubectl -n %s describe pdb %s", found[1], found[2])
	}
	return report(s)
}

// plainName is a name that means nothing to a shell.
var plainName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// safe is a command with names from objects in it; empty where one of them is not just a name, so
// that no text of an object is ever run.
func safe(format string, names ...string) string {
	values := make([]any, len(names))
	for i, name := range names {
		if !plainName.MatchString(name) {
			return ""
		}
		values[i] = name
	}
	return fmt.Sprintf(format, values...)
}

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
