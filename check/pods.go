package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// pods looks at pods that did not start, or did not end. Builds would not, either.
func pods(f *Facts) []Finding {
	if f.Pods.Refused != "" {
		return []Finding{{State: Unknown, What: "no pods were started: " + f.Pods.Refused, Why: "they try what builds need", Run: "layerwright check --pods   # again when that is mended"}}
	}
	var all []Finding
	for _, pod := range append([]Pod{f.Pods.Open, f.Pods.Closed}, f.Pods.Nodes...) {
		if pod.Stuck == "" || pod.lacksUserNamespace() != "" {
			continue // user-namespaces has the latter
		}
		finding := Finding{
			State: Mend, What: fmt.Sprintf("pod %q%s: %s", pod.Name, on(pod.Node), pod.Stuck), Why: "builds run in such pods",
			Run: "kubectl -n " + f.Namespace + " get events --sort-by=.lastTimestamp",
		}
		if pod.IsPull {
			finding.Run = "kubectl -n " + f.Namespace + " get serviceaccount layerwright-build -o yaml   # its imagePullSecrets: docs/install.md, \"Install\""
		}
		all = append(all, finding)
	}
	switch {
	case len(all) > 0:
	case len(f.Pods.Nodes) == 0:
		all = []Finding{{State: Mend, What: "no node is Ready and takes pods", Why: "builds run on one", Run: "kubectl get nodes"}}
	default:
		all = ok("pods of builds run on %d nodes", len(f.Pods.Nodes))
	}
	if f.Pods.Untried > 0 {
		all = append(all, Finding{
			State: Unknown, What: fmt.Sprintf("%d more nodes take builds, and were not tried: at most %d are", f.Pods.Untried, mostNodes), Why: "builds may run there too", Run: "kubectl get nodes",
		})
	}
	if f.Pods.Left != "" {
		all = append(all, Finding{
			State: Mend, What: "pods of this check remain: " + f.Pods.Left, Why: "they see push secrets until they end by themselves",
			Run: "kubectl -n " + f.Namespace + " delete pods -l " + ownLabel + "=" + ownValue,
		})
	}
	return all
}

// lacksUserNamespace is why a pod that was to have a user namespace has none; empty where it has
// one, or is stuck for something else.
func (p Pod) lacksUserNamespace() string {
	switch {
	case !p.UserNamespace:
		return ""
	case p.Report != nil && !p.Report.UserNamespace:
		return "root of the pod is root of the node"
	case p.Warning == "FailedCreatePodSandBox", p.Warning == "FailedCreatePodContainer":
		return p.Stuck
	}
	return ""
}

func on(node string) string {
	if node == "" {
		return ""
	}
	return " on node " + node
}

// registries looks at whether pods may push to where MachineOSConfigs have their images.
func registries(f *Facts) []Finding {
	var all []Finding
	tried := map[string]bool{}
	for _, pod := range f.Pods.Nodes {
		if pod.Report == nil {
			continue
		}
		for _, push := range f.pushes() {
			trouble, isTried := pod.Report.Push[push.folder()]
			if !isTried {
				continue
			}
			tried[push.repository] = true
			if trouble == "" {
				continue
			}
			finding := Finding{
				State: Mend, What: fmt.Sprintf("a pod on node %q can't push to %s: %s (secret %q)", pod.Node, push.repository, trouble, push.secret), Why: "builds push from such pods",
				Run: mendRegistry(f, trouble),
			}
			if strings.Contains(trouble, "x509") && slices.ContainsFunc(push.pools, func(pool string) bool { return f.Anchors[pool] }) {
				finding.State, finding.Why = Unknown, "builds trust the authorities in the pool's MachineConfigs too, and these pods don't"
			}
			all = append(all, finding)
		}
	}
	switch {
	case len(all) > 0:
		return all
	case len(tried) == 0:
		return []Finding{{
			State: Unknown, What: "no push secret was tried", Why: "a MachineOSConfig names registry and secret, and a pod on a node tries them",
			Run: "layerwright check --pods   # again when there is one: docs/install.md, \"First image\"",
		}}
	}
	return ok("pods may push to %s", strings.Join(slices.Sorted(maps.Keys(tried)), ", "))
}

// mendRegistry is the command for what a registry, or the way to it, says.
func mendRegistry(f *Facts, trouble string) string {
	switch {
	case strings.Contains(trouble, "x509"):
		return "kubectl -n " + f.Namespace + " create configmap layerwright-registry-ca --from-file=ca.crt   # and the component registry-ca: docs/install.md"
	case strings.Contains(trouble, "401"), strings.Contains(trouble, "403"), strings.Contains(strings.ToLower(trouble), "denied"):
		return "kubectl -n " + f.Namespace + " create secret docker-registry ... --dry-run=client -o yaml | kubectl apply -f -   # an account that may push"
	}
	return "kubectl -n " + f.Namespace + " get networkpolicies   # name server, route and policies: docs/install.md, \"Install\""
}

// clocksOfPods compares the clocks of nodes with the API server's: what happens on a node happens
// after the pod was made, and before its end was seen.
func clocksOfPods(f *Facts) (all []Finding) {
	if f.Pods == nil {
		return nil
	}
	for _, pod := range f.Pods.Nodes {
		if pod.Finished.IsZero() {
			continue
		}
		if early := pod.Created.Sub(pod.Started); early > mostSkew {
			all = append(all, clockIsOff(pod.Node, early))
		} else if late := pod.Finished.Sub(pod.Seen); late > mostSkew {
			all = append(all, clockIsOff(pod.Node, late))
		}
	}
	return all
}

// clockKnown reports whether a pod has compared the clock of a node, which it does more exactly
// than a Lease.
func (f *Facts) clockKnown(node string) bool {
	return f.Pods != nil && slices.ContainsFunc(f.Pods.Nodes, func(p Pod) bool { return p.Node == node && !p.Finished.IsZero() })
}

// brokenUserNamespaces are nodes that offer user namespaces, and give none.
func brokenUserNamespaces(f *Facts) (all []Finding) {
	if f.Pods == nil {
		return nil
	}
	for _, pod := range f.Pods.Nodes {
		trouble := pod.lacksUserNamespace()
		if trouble == "" {
			continue
		}
		all = append(all, Finding{
			State: Mend, What: fmt.Sprintf("node %q offers user namespaces, and a pod with one did not work: %s", pod.Node, trouble),
			Why: "the controller gives one to builds where all nodes offer them, and builds on this node wait",
			Run: "kubectl -n " + f.Namespace + " edit deployment layerwright-controller   # add --builder-user-namespaces=Never, or mend the node: docs/build-pod.md",
		})
	}
	return all
}

// triedNetworkPolicies reports whether a pod was reached that a NetworkPolicy closes.
func triedNetworkPolicies(tried *Pods) []Finding {
	open, closed := 0, 0
	for _, pod := range tried.Nodes {
		if pod.Report == nil {
			continue
		}
		if pod.Report.Reached[tried.Open.Address] {
			open++
		}
		if pod.Report.Reached[tried.Closed.Address] {
			closed++
		}
	}
	const run = "kubectl get daemonsets --all-namespaces   # is there a network plugin that enforces NetworkPolicies, such as Calico or Cilium?"
	switch {
	case closed > 0:
		return []Finding{{
			State: Advice, What: fmt.Sprintf("NetworkPolicies are not enforced: pods on %d nodes reached a pod of builds on node %q, which the policy layerwright-build closes", closed, tried.Closed.Node),
			Why: "they keep RUN lines of builds from the cluster's network", Run: run,
		}}
	case open == 0 || tried.Closed.Address == "":
		return []Finding{{
			State: Unknown, What: "no pod reached another, so nothing is known of NetworkPolicies", Why: "they keep RUN lines of builds from the cluster's network", Run: run,
		}}
	}
	return ok("NetworkPolicies are enforced: pods on %d nodes did not reach one that is closed", open)
}

// serverTime is the time of the API server at a time of this machine.
func (f *Facts) serverTime(local time.Time) time.Time {
	return local.Add(f.ServerTime.Sub(f.LocalTime))
}
