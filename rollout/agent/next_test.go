package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/nodes"
	"github.com/layerwright/layerwright/nodes/nodestest"
	"github.com/layerwright/layerwright/rollout/agent/nodestate"
	"github.com/layerwright/layerwright/rollout/host"
)

func targetOf(digit string) nodes.Target {
	return nodes.Target{Config: "rendered-" + digit, Image: nodestest.Pinned(digit)}
}

func pinned(digit string) mcfgv1.ImageDigestFormat {
	return mcfgv1.ImageDigestFormat(nodestest.Pinned(digit))
}

// idle is a node that has, and should have, the target of digit 1.
func idle(change ...func(*state)) *state {
	s := &state{
		nodeAnnotations: nodeAnnotations{current: targetOf("1"), desired: targetOf("1"), hasStaged: true, state: mcfgv1.NodeStateDone},
		host:            host.Status{Booted: deployment("1")}, bootID: "now",
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// moving is a node that should have the target of digit 2, and has the one of digit 1.
func moving(change ...func(*state)) *state {
	return idle(append([]func(*state){func(s *state) { s.desired = targetOf("2") }}, change...)...)
}

// onBase has the node follow the OS image of its configuration, which it runs.
func onBase(s *state) {
	s.current, s.desired, s.base = nodes.Target{Config: "rendered-1"}, nodes.Target{Config: "rendered-1"}, pinned("1")
}
func holding(s *state) { s.host.Staged = deployment("2") }
func atWork(s *state) {
	s.state, s.desiredDrain = mcfgv1.NodeStateWorking, mcfgv1.DrainPrefix+s.drainID()
}
func drained(s *state)  { s.lastDrain = s.desiredDrain }
func prepared(s *state) { s.state, s.journal = mcfgv1.NodeStateRebooting, readyFor("2", "now") }
func rebooted(s *state) { prepared(s); s.journal.BootID = "before" }
func lacking(s *state) {
	s.changes = []nodestate.Change{{Action: nodestate.Write, Item: nodestate.Item{Path: "/var/lib/x"}}}
}

func readyFor(digit, boot string) Journal {
	return Journal{Target: targetOf(digit), Image: pinned(digit), BootID: boot, Ready: true}
}

func failed(s *state) {
	s.journal = Journal{Target: targetOf("2"), Failed: "the node came back with 1"}
}

func TestNext(t *testing.T) {
	t.Parallel()
	const (
		none, stage, unstage, report = actionNone, actionStage, actionUnstage, actionReport
		drain, arrive, fail          = actionDrain, actionArrive, actionFail
	)
	tests := map[string]struct {
		s      *state
		want   action
		image  string
		reason string
	}{
		"a node without annotations": {&state{}, actionIntroduce, "", "the agent has started on a node that does not know it"},
		"an agent before this one wrote no staged-image": {
			idle(func(s *state) { s.hasStaged = false }), actionIntroduce, "", "the agent has started on a node that does not know it",
		},
		"a node that does not say its boot image": {
			idle(func(s *state) { s.bootImage = "9.6.20250826-1" }), actionIntroduce, "", "the node does not say which boot image it was installed from",
		},
		"a node that says its boot image": {
			idle(func(s *state) { s.bootImage, s.reportedBootImage = "9.6.20250826-1", "9.6.20250826-1" }), none, "", "nothing is asked for",
		},
		"nothing is asked for":      {idle(), none, "", "nothing is asked for"},
		"no configuration is known": {&state{nodeAnnotations: nodeAnnotations{state: mcfgv1.NodeStateDone, hasStaged: true}}, none, "", "nothing is asked for"},

		"an image is asked for": {idle(func(s *state) { s.stage = nodestest.Pinned("2") }), stage, "2", "the controller asks for it"},
		"it is staged": {
			idle(holding, func(s *state) { s.stage = nodestest.Pinned("2") }), report, "2", "the image is on the host",
		},
		"it is reported": {
			idle(holding, func(s *state) { s.stage, s.staged = nodestest.Pinned("2"), nodestest.Pinned("2") }), none, "", "the image is on the host",
		},
		"someone else removed what is reported": {
			idle(func(s *state) { s.stage, s.staged = nodestest.Pinned("2"), nodestest.Pinned("2") }), stage, "2", "the controller asks for it",
		},
		"another image is asked for": {
			idle(holding, func(s *state) { s.stage, s.staged = nodestest.Pinned("3"), nodestest.Pinned("2") }), stage, "3", "the controller asks for it",
		},
		"it is no longer asked for": {
			idle(holding, func(s *state) { s.staged = nodestest.Pinned("2") }), unstage, "2", "the image is no longer asked for",
		},
		"the image that runs is asked for": {idle(func(s *state) { s.stage = nodestest.Pinned("1") }), none, "", "nothing is asked for"},
		"a running image that the Node does not name is asked for": {
			idle(onBase, func(s *state) { s.stage = nodestest.Pinned("1") }), report, "1", "the image is on the host",
		},
		"it has been reported": {
			idle(onBase, func(s *state) { s.stage, s.staged = nodestest.Pinned("1"), nodestest.Pinned("1") }), none, "", "the image is on the host",
		},
		"the image that ran before is asked for": {
			idle(func(s *state) { s.stage, s.host.Rollback = nodestest.Pinned("0"), deployment("0") }), report, "0", "the image is on the host",
		},
		"the image that ran before instead of the staged one": {
			idle(holding, func(s *state) {
				s.stage, s.staged, s.host.Rollback = nodestest.Pinned("0"), nodestest.Pinned("2"), deployment("0")
			}), unstage, "2", "the host has booted the wanted image before",
		},

		"a person booted another image": {
			idle(func(s *state) { s.host.Booted = deployment("7") }), fail, "",
			"the node booted " + nodestest.Pinned("7") + " instead of " + nodestest.Pinned("1"),
		},
		"it is said once": {
			idle(func(s *state) {
				s.host.Booted, s.state = deployment("7"), mcfgv1.NodeStateDegraded
				s.reason = "the node booted " + nodestest.Pinned("7") + " instead of " + nodestest.Pinned("1")
			}), none, "", "nothing is asked for",
		},
		"a host of no image": {
			idle(func(s *state) { s.host.Booted = &host.Deployment{} }), fail, "", "the node booted no image instead of " + nodestest.Pinned("1"),
		},
		"node state is lacking":             {idle(lacking), actionApply, "", "the host lacks configuration that is not in the image: [write /var/lib/x]"},
		"a policy is temporary for nothing": {idle(func(s *state) { s.policy = true }), actionApply, "", "the temporary signature policy is no longer needed"},
		"the journal is of how it got here": {
			idle(func(s *state) { s.journal = readyFor("1", "before") }), actionForget, "", "the node has arrived",
		},
		"a file has drifted":      {idle(func(s *state) { s.drift = []string{"/etc/a was removed"} }), fail, "", "unexpected on-disk state validating against rendered-1: /etc/a was removed"},
		"many files have drifted": {idle(func(s *state) { s.drift = []string{"1", "2", "3", "4", "5", "6", "7"} }), fail, "", "unexpected on-disk state validating against rendered-1: 1; 2; 3; 4; 5; and 2 more"},
		"a drifted node still stages": {idle(func(s *state) {
			s.drift, s.state, s.reason, s.stage = []string{"x"}, mcfgv1.NodeStateDegraded, "unexpected on-disk state validating against rendered-1: x", nodestest.Pinned("2")
		}), stage, "2", "the controller asks for it"},
		"a drift has ended":                    {idle(func(s *state) { s.state = mcfgv1.NodeStateDegraded }), arrive, "", "the node has what it should have"},
		"it was to change, and no longer is":   {idle(func(s *state) { s.state = mcfgv1.NodeStateWorking }), arrive, "", "the node has what it should have"},
		"it was prepared, and no longer is to": {idle(holding, prepared), actionUndo, "2", "the target changed after the node was prepared"},
		"it was prepared, and the image was replaced": {
			idle(holding, prepared, func(s *state) { s.desired = targetOf("3") }), actionUndo, "2", "the target changed after the node was prepared",
		},
		"it rebooted for what is no longer wanted": {
			idle(rebooted, func(s *state) { s.host.Booted = deployment("2") }), arrive, "", "the node runs a target that is no longer wanted",
		},
		"it did not reach what is no longer wanted": {idle(rebooted), actionForget, "", "the node did not reach its old target, which is no longer wanted"},

		"the journal is of the update before":      {moving(func(s *state) { s.journal = readyFor("1", "before") }), stage, "2", "the node's turn has come"},
		"it has a slot without staging":            {moving(), stage, "2", "the node's turn has come"},
		"it has a slot, and it holds it":           {moving(holding), drain, "2", "the image is on the host"},
		"it has a slot for what ran before":        {moving(func(s *state) { s.host.Rollback = deployment("2") }), drain, "2", "the image is on the host"},
		"the drain was for another target":         {moving(holding, atWork, drained, func(s *state) { s.desired = targetOf("3"); s.host.Staged = deployment("3") }), drain, "3", "the image is on the host"},
		"it is being drained":                      {moving(holding, atWork), none, "", "the controller drains the node"},
		"what runs lacks something before it goes": {moving(holding, lacking), actionApply, "", "the host lacks configuration that is not in the image: [write /var/lib/x]"},
		"it is drained":                            {moving(holding, atWork, drained), actionPrepare, "2", "the node is drained"},
		"it was killed while it prepared":          {moving(holding, atWork, drained, prepared, func(s *state) { s.journal.Ready = false }), actionPrepare, "2", "the node is drained"},
		"the journal was lost":                     {moving(holding, atWork, drained, prepared, func(s *state) { s.journal = Journal{} }), actionPrepare, "2", "the node is drained"},
		"it is prepared":                           {moving(holding, atWork, drained, prepared), actionReboot, "", "to boot " + nodestest.Pinned("2") + " with rendered-2"},
		"the rollback is not queued any more":      {moving(atWork, drained, prepared, func(s *state) { s.host.Rollback = deployment("2") }), actionPrepare, "2", "the node is drained"},
		"the rollback is queued":                   {moving(atWork, drained, prepared, func(s *state) { s.host.Rollback, s.host.RollbackQueued = deployment("2"), true }), actionReboot, "", "to boot " + nodestest.Pinned("2") + " with rendered-2"},
		"it has rebooted":                          {moving(rebooted, func(s *state) { s.host.Booted = deployment("2") }), arrive, "", "the node runs what it should"},
		"it has rebooted, and lacks node state":    {moving(rebooted, lacking, func(s *state) { s.host.Booted = deployment("2") }), actionApply, "", "the host lacks configuration that is not in the image: [write /var/lib/x]"},
		"it came back with the old image":          {moving(rebooted), fail, "", "the node came back with image 111111111111 instead of image 222222222222"},
		"it came back without kernel arguments":    {moving(rebooted, func(s *state) { s.host.Booted, s.arguments.To = deployment("2"), []string{"nosmt"} }), fail, "", "the node came back with other kernel arguments than those of rendered-2"},
		"it failed, and node state is taken back":  {moving(failed, lacking), actionApply, "", "the host lacks configuration that is not in the image: [write /var/lib/x]"},
		"it failed":                            {moving(failed, atWork), fail, "", "the node came back with 1"},
		"a person asks for another try":        {moving(failed), actionForget, "", "the state of a failed update was set to Done"},
		"it failed, and there is a new target": {moving(failed, func(s *state) { s.desired = targetOf("3") }), stage, "3", "the node's turn has come"},

		"kernel arguments alone": {
			idle(func(s *state) { s.desired.Config, s.arguments.To = "rendered-2", []string{"nosmt"} }), drain, "1", "the image is on the host",
		},
		"node state alone needs no reboot": {
			idle(lacking, func(s *state) { s.desired.Config = "rendered-2" }), actionApply, "", "the host lacks configuration that is not in the image: [write /var/lib/x]",
		},
		"a configuration that changes nothing": {idle(func(s *state) { s.desired.Config = "rendered-2" }), arrive, "", "the node runs what it should"},
		"back to the stream's OS image": {
			idle(func(s *state) { s.desired, s.base = nodes.Target{Config: "rendered-2"}, pinned("5") }), stage, "5", "the node's turn has come",
		},
		"no image is named at all": {
			idle(func(s *state) { s.desired = nodes.Target{Config: "rendered-2"} }), arrive, "", "the node runs what it should",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := next(tt.s)
			assert.Equal(t, tt.want, got.action, got.reason)
			assert.Equal(t, tt.reason, got.reason)
			image := mcfgv1.ImageDigestFormat("")
			if tt.image != "" {
				image = pinned(tt.image)
			}
			assert.Equal(t, image, got.image)
		})
	}
}

func TestApplied(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		s    *state
		want string
	}{
		"a node that has what it should":       {idle(), "rendered-1"},
		"one that stages":                      {moving(), "rendered-1"},
		"one that is drained":                  {moving(holding, atWork, drained), "rendered-1"},
		"one that is prepared":                 {moving(holding, prepared), "rendered-2"},
		"one that has rebooted":                {moving(rebooted, func(s *state) { s.host.Booted = deployment("2") }), "rendered-2"},
		"one that failed":                      {moving(failed), "rendered-1"},
		"one that needs no reboot":             {idle(func(s *state) { s.desired.Config = "rendered-2" }), "rendered-2"},
		"one that goes back after preparation": {idle(holding, prepared), "rendered-1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, tt.s.applied())
		})
	}
}
