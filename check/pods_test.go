package check

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/check/probe"
)

const (
	repository = "registry.example.com/os/worker"
	pushFolder = "/run/push-0"
)

// tried is the healthy cluster, where pods found that all is well.
func tried() *Facts {
	f := healthy()
	f.Configs[0].Spec.RenderedImagePushSpec, f.Configs[0].Spec.MachineConfigPool.Name = repository+":latest", "worker"
	f.Pods = &Pods{Open: Pod{Name: "open", Node: "node1", Address: "10.0.0.1:8443"}, Closed: Pod{Name: "closed", Node: "node2", Address: "10.0.0.2:8443"}}
	for _, node := range f.Nodes {
		f.Pods.Nodes = append(f.Pods.Nodes, Pod{
			Name: "check-" + node.Name, Node: node.Name, UserNamespace: true,
			Created: noon, Started: noon.Add(time.Second), Finished: noon.Add(2 * time.Second), Seen: noon.Add(3 * time.Second),
			Report: &probe.Report{UserNamespace: true, Push: map[string]string{pushFolder: ""}, Reached: map[string]bool{"10.0.0.1:8443": true, "10.0.0.2:8443": false}},
		})
	}
	return f
}

func TestPods(t *testing.T) {
	t.Parallel()
	fails := func(trouble string) func(*Facts) {
		return func(f *Facts) { f.Pods.Nodes[1].Report.Push[pushFolder] = trouble }
	}
	tests := map[string]struct {
		change    func(*Facts)
		check     string
		state     State
		what, run string
	}{
		"all is well: pods":       {func(*Facts) {}, "pods", OK, "on 2 nodes", ""},
		"all is well: registry":   {func(*Facts) {}, "registry", OK, "may push to " + repository, ""},
		"all is well: namespaces": {func(*Facts) {}, "user-namespaces", OK, "all 2 nodes", ""},
		"all is well: policies":   {func(*Facts) {}, "network-policies", OK, "are enforced", ""},
		"all is well: clocks":     {func(*Facts) {}, "clocks", OK, "agree", ""},
		"nothing is installed":    {func(f *Facts) { f.Pods = &Pods{Refused: "not installed"} }, "pods", Unknown, "not installed", "--pods"},
		"policies without pods":   {func(f *Facts) { f.Pods = &Pods{Refused: "not installed"} }, "network-policies", OK, "cilium", ""},
		"no node takes builds":    {func(f *Facts) { f.Pods.Nodes = nil }, "pods", Mend, "no node", "get nodes"},
		"an image can't be pulled": {func(f *Facts) {
			f.Pods.Nodes[1] = Pod{Name: "x", Node: "node2", UserNamespace: true, IsPull: true, Stuck: "ImagePullBackOff: 401"}
		}, "pods", Mend, `pod "x" on node node2: ImagePullBackOff: 401`, "serviceaccount layerwright-build"},
		"a pod has no node":     {func(f *Facts) { f.Pods.Closed = Pod{Name: "closed", Stuck: "0/2 nodes are available"} }, "pods", Mend, `pod "closed": 0/2 nodes`, "get events"},
		"a secret may not push": {fails("denied: 403 Forbidden"), "registry", Mend, `a pod on node "node2" can't push to ` + repository, "create secret"},
		"one of two secrets may not push": {func(f *Facts) {
			other := *f.Configs[0].DeepCopy()
			other.Spec.RenderedImagePushSecret.Name, f.Secrets["other"] = "other", true
			f.Configs = append(f.Configs, other)
			f.Pods.Nodes[1].Report.Push["/run/push-1"] = "403 Forbidden"
		}, "registry", Mend, repository + `: 403 Forbidden (secret "other")`, "create secret"},
		"an unknown authority": {fails("x509: certificate signed by unknown authority"), "registry", Mend, "x509", "configmap layerwright-registry-ca"},
		"an authority of a MachineConfig": {func(f *Facts) {
			fails("x509: certificate signed by unknown authority")(f)
			f.Anchors = map[string]bool{"worker": true}
		}, "registry", Unknown, "x509", "configmap layerwright-registry-ca"},
		"no way to the registry": {fails("dial tcp: no route to host"), "registry", Mend, "no route", "get networkpolicies"},
		"no MachineOSConfig yet": {func(f *Facts) {
			for i := range f.Pods.Nodes {
				f.Pods.Nodes[i].Report.Push = nil
			}
		}, "registry", Unknown, "no push secret was tried", "First image"},
		"a node breaks its promise": {func(f *Facts) {
			f.Pods.Nodes[0].Report, f.Pods.Nodes[0].Stuck, f.Pods.Nodes[0].Warning = nil, "mount_setattr: invalid argument", "FailedCreatePodSandBox"
		}, "user-namespaces", Mend, `node "node1" offers user namespaces, and a pod with one did not work: mount_setattr`, "--builder-user-namespaces=Never"},
		"another trouble is not for want of one": {func(f *Facts) {
			f.Pods.Nodes[0].Report, f.Pods.Nodes[0].Stuck, f.Pods.Nodes[0].Warning = nil, "MountVolume.SetUp failed", "FailedMount"
		}, "pods", Mend, `pod "check-node1" on node node1: MountVolume.SetUp failed`, "get events"},
		"user namespaces are not at fault for another trouble": {func(f *Facts) {
			f.Pods.Nodes[0].Report, f.Pods.Nodes[0].Stuck = nil, "it did not end in time"
		}, "user-namespaces", OK, "all 2 nodes", ""},
		"pods remain": {func(f *Facts) {
			f.Pods.Left = "removing pods: forbidden"
		}, "pods", Mend, "removing pods: forbidden", "delete pods -l app.kubernetes.io/instance=layerwright-check"},
		"more nodes than are tried":   {func(f *Facts) { f.Pods.Untried = 3 }, "pods", Unknown, "3 more nodes", "get nodes"},
		"an API server that drops it": {func(f *Facts) { f.Pods.Nodes[0].Report.UserNamespace = false }, "user-namespaces", Mend, "is root of the node", "Never"},
		"nothing enforces policies": {func(f *Facts) {
			f.Pods.Nodes[0].Report.Reached["10.0.0.2:8443"] = true
		}, "network-policies", Advice, "not enforced: pods on 1 nodes reached", "Calico"},
		"pods don't reach each other": {func(f *Facts) {
			for _, pod := range f.Pods.Nodes {
				clear(pod.Report.Reached)
			}
		}, "network-policies", Unknown, "no pod reached another", ""},
		"a clock is behind": {func(f *Facts) { f.Pods.Nodes[1].Started = noon.Add(-time.Minute) }, "clocks", Mend, `node "node2" is about 1m0s`, "timedatectl"},
		"a clock is ahead":  {func(f *Facts) { f.Pods.Nodes[1].Finished = noon.Add(5 * time.Minute) }, "clocks", Mend, `node "node2" is about 4m57s`, "timedatectl"},
		"a Lease is less exact": {func(f *Facts) {
			f.Heartbeats["node2"].Spec.RenewTime.Time = noon.Add(5 * time.Minute)
		}, "clocks", OK, "agree", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := tried()
			test.change(facts)
			var found []Finding
			for _, finding := range Of(facts) {
				if finding.Check == test.check {
					found = append(found, finding)
				}
			}
			if len(found) == 2 && found[0].State == OK { // what is said beside it
				found = found[1:]
			}
			require.Len(t, found, 1)
			assert.Equal(t, test.state, found[0].State)
			assert.Contains(t, found[0].What, test.what)
			assert.Contains(t, found[0].Run, test.run)
			assert.Equal(t, test.state == OK, found[0].Why == "" && strings.TrimSpace(found[0].Run) == "")
		})
	}
}
