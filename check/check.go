package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/nodes"
)

// State is what a check found.
type State string

// States of findings.
const (
	// OK means that nothing is to be done.
	OK State = "ok"
	// Advice means that it works, and could be better or safer.
	Advice State = "advice"
	// Unknown means that the cluster, or the user's rights, did not tell.
	Unknown State = "unknown"
	// Mend means that something does not work before it is mended.
	Mend State = "mend"
)

// Finding is what a check found, for people.
type Finding struct {
	// Check is the name of the check.
	Check string `json:"check"`
	State State  `json:"state"`
	What  string `json:"what"`
	// Why says what it matters for, and Run is the command that mends it; empty where all is well.
	Why string `json:"why,omitempty"`
	Run string `json:"run,omitempty"`
}

const (
	// oldestMinor is the first of Kubernetes 1 with version v1 of ValidatingAdmissionPolicies.
	oldestMinor = 30
	// oldestTekton is the first version with all that deploy/components/tekton uses.
	oldestTekton = "1.9.0"
	// pipelineRuns is the definition by which Tekton is known.
	pipelineRuns = "pipelineruns.tekton.dev"
	// mostSkew is how far clocks may be apart: certificates and signatures are checked with them.
	mostSkew = 30 * time.Second
	// renewal is how often a node renews its Lease.
	renewal = 10 * time.Second
)

// Of judges facts. Every check is heard, in the order in which people mend.
func Of(f *Facts) []Finding {
	type judgement struct {
		name  string
		judge func(*Facts) []Finding
	}
	checks := []judgement{
		{"api-server", apiServer},
		{"clocks", clocks},
		{"rights", rights},
		{"kinds", kinds},
		{"namespace", namespace},
		{"admission-policies", admissionPolicies},
		{"controller", controller},
		{"agent", agent},
		{"user-namespaces", userNamespaces},
		{"network-policies", networkPolicies},
		{"tekton", tekton},
		{"streams", streams},
		{"images", images},
	}
	if f.Pods != nil {
		checks = append(checks, judgement{"pods", pods}, judgement{"registry", registries})
	}
	var all []Finding
	for _, check := range checks {
		for _, finding := range check.judge(f) {
			finding.Check = check.name
			all = append(all, finding)
		}
	}
	return all
}

func ok(format string, args ...any) []Finding {
	return []Finding{{State: OK, What: fmt.Sprintf(format, args...)}}
}

// notRead is the finding where the user may not read a kind.
func notRead(resource string) []Finding {
	return []Finding{{
		State: Unknown, What: "you may not list " + resource, Why: "this check reads them",
		Run: "kubectl auth can-i list " + resource + " --all-namespaces",
	}}
}

func apiServer(f *Facts) []Finding {
	v, err := version.ParseGeneric(f.Version)
	if err != nil {
		return []Finding{{State: Unknown, What: fmt.Sprintf("the API server has version %q", f.Version), Why: "Kubernetes 1.30 is the oldest that works", Run: "kubectl version"}}
	}
	if v.LessThan(version.MajorMinor(1, oldestMinor)) {
		return []Finding{{
			State: Mend, What: "the API server is Kubernetes " + f.Version,
			Why: fmt.Sprintf("admission policies, which keep Layerwright's rights narrow, need 1.%d or later", oldestMinor), Run: "kubeadm upgrade plan",
		}}
	}
	return ok("the API server is Kubernetes %s", f.Version)
}

func clocks(f *Facts) []Finding {
	var all []Finding
	if skew := f.LocalTime.Sub(f.ServerTime).Abs(); skew > mostSkew {
		all = append(all, Finding{State: Advice, What: fmt.Sprintf("the clocks of this machine and the API server are %s apart", skew.Round(time.Second)), Why: clocksMatter, Run: "timedatectl status"})
	}
	all = append(all, clocksOfPods(f)...)
	if f.Denied["leases"] && f.Pods == nil {
		return append(all, notRead("leases.coordination.k8s.io")...)
	}
	for _, node := range f.Nodes {
		renewed := f.Heartbeats[node.Name].Spec.RenewTime
		if renewed == nil || f.clockKnown(node.Name) || !nodes.Observe(&node).Ready { // a node that is down renews nothing
			continue
		}
		if since := f.ServerTime.Sub(renewed.Time); since > renewal+mostSkew || since < -mostSkew {
			all = append(all, clockIsOff(node.Name, since))
		}
	}
	if len(all) > 0 {
		return all
	}
	return ok("clocks of the API server and of %d nodes agree", len(f.Nodes))
}

const clocksMatter = "certificates and signatures are checked against clocks"

func clockIsOff(node string, by time.Duration) Finding {
	return Finding{
		State: Mend, What: fmt.Sprintf("the clock of node %q is about %s from the API server's", node, by.Abs().Round(time.Second)), Why: clocksMatter,
		Run: "ssh " + node + " timedatectl status",
	}
}

func rights(f *Facts) []Finding {
	if f.Denied["deployments"] {
		return notRead("deployments.apps")
	}
	if f.installed() {
		return ok("Layerwright is installed")
	}
	var lacking []string
	for right, has := range f.Rights {
		if !has {
			lacking = append(lacking, right.Verb+" "+strings.TrimSuffix(right.Resource+"."+right.Group, "."))
		}
	}
	if len(lacking) > 0 {
		slices.Sort(lacking)
		return []Finding{{
			State: Mend, What: "you may not: " + strings.Join(lacking, ", "), Why: "installing makes these objects",
			Run: "kubectl auth can-i --list   # then install as cluster-admin",
		}}
	}
	return ok("you may create all that installing makes")
}

// kindNames are the definitions of Layerwright's kinds.
var kindNames = []string{
	"bootimagehistories.machineconfiguration.openshift.io",
	"machineconfignodes.machineconfiguration.openshift.io",
	"machineconfigpools.machineconfiguration.openshift.io",
	"machineconfigs.machineconfiguration.openshift.io",
	"machineconfigurations.operator.openshift.io",
	"machineosbuilds.machineconfiguration.openshift.io",
	"machineosconfigs.machineconfiguration.openshift.io",
	"machineosimages.machineconfiguration.openshift.io",
	"osimagestreams.machineconfiguration.openshift.io",
}

func kinds(f *Facts) []Finding {
	if f.Denied["customresourcedefinitions"] {
		return notRead("customresourcedefinitions")
	}
	var missing, openshifts, strangers []string
	owners := map[string]bool{}
	for _, name := range kindNames {
		definition, exists := f.Definitions[name]
		switch owner := ownerOf(&definition); {
		case !exists:
			missing = append(missing, name)
		case owner == openshift:
			openshifts = append(openshifts, name)
		case owner != "":
			strangers = append(strangers, name)
			owners[owner] = true
		}
	}
	switch {
	case len(strangers) > 0:
		state := Mend
		if f.installed() { // whoever installed has decided
			state = Advice
		}
		return []Finding{{
			State: state, What: fmt.Sprintf("%s: owned by %s", strings.Join(strangers, ", "), strings.Join(slices.Sorted(maps.Keys(owners)), ", ")),
			Why: "installing takes these kinds over, and their owner may put its own back",
			Run: "kubectl get crd " + strings.Join(strangers, " ") + " --show-labels   # then install with Helm and --set crds.install=false",
		}}
	case len(openshifts) > 0 && f.Namespace != openshiftNamespace:
		return []Finding{{
			State: Mend, What: fmt.Sprintf("OpenShift owns %d of Layerwright's kinds", len(openshifts)),
			Why: "on OpenShift Layerwright lives beside the machine-config-operator, in its namespace",
			Run: "kubectl apply --server-side --force-conflicts -f install-openshift.yaml && layerwright check --namespace " + openshiftNamespace,
		}}
	case f.installed() && len(missing) > 0:
		return []Finding{{
			State: Mend, What: "kinds are missing: " + strings.Join(missing, ", "), Why: "the controller waits for them",
			Run: f.installAgain(),
		}}
	case len(missing) == len(kindNames):
		return ok("no kind of Layerwright's is there yet, and none is in its way")
	}
	return ok("%d of %d kinds are there", len(kindNames)-len(missing), len(kindNames))
}

// openshift is the owner of the kinds that OpenShift has itself, and openshiftNamespace where
// Layerwright lives there.
const (
	openshift          = "OpenShift"
	openshiftNamespace = "openshift-machine-config-operator"
)

// ownerOf is who but Layerwright owns a definition; empty where there is no owner.
func ownerOf(definition *metav1.PartialObjectMetadata) string {
	for key := range definition.Annotations {
		if strings.Contains(key, "release.openshift.io/") {
			return openshift
		}
	}
	if definition.Labels["app.kubernetes.io/part-of"] == "layerwright" {
		return ""
	}
	for _, label := range []string{"app.kubernetes.io/part-of", "app.kubernetes.io/managed-by", "app.kubernetes.io/name"} {
		if owner := definition.Labels[label]; owner != "" {
			return owner
		}
	}
	for key := range definition.Labels {
		if name, isOLM := strings.CutPrefix(key, "operators.coreos.com/"); isOLM && !strings.HasPrefix(name, "layerwright.") {
			return "operator " + name
		} else if isOLM {
			return ""
		}
	}
	for _, entry := range definition.ManagedFields {
		if entry.Subresource == "" {
			return "field manager " + entry.Manager
		}
	}
	return ""
}

func namespace(f *Facts) []Finding {
	switch {
	case f.Denied["namespaces"]:
		return notRead("namespaces")
	case !f.HasNamespace:
		return ok("namespace %q is not there: installing creates it", f.Namespace)
	case f.Level == "baseline" || f.Level == "restricted":
		return []Finding{{
			State: Mend, What: fmt.Sprintf("namespace %q enforces the Pod Security level %s", f.Namespace, f.Level),
			Why: "builds mount file systems and agents run on the host, which this level refuses; the policy layerwright-pods limits what pods may do instead",
			Run: "kubectl label namespace " + f.Namespace + " pod-security.kubernetes.io/enforce=privileged --overwrite",
		}}
	case f.Level == "":
		return []Finding{{
			State: Advice, What: fmt.Sprintf("namespace %q has the cluster's default Pod Security level", f.Namespace),
			Why: "builds mount file systems and agents run on the host; where the default is baseline or restricted, they are refused",
			Run: "kubectl label namespace " + f.Namespace + " pod-security.kubernetes.io/enforce=privileged",
		}}
	}
	return ok("namespace %q enforces the Pod Security level %s", f.Namespace, f.Level)
}

func admissionPolicies(f *Facts) []Finding {
	switch {
	case f.Denied["validatingadmissionpolicies"]:
		return notRead("validatingadmissionpolicies.admissionregistration.k8s.io")
	case f.Denied["deployments"]:
		return notRead("deployments.apps")
	case !f.installed():
		return ok("installing brings them")
	}
	wanted := names.AdmissionPolicies()
	if f.Agent != nil {
		wanted = append(wanted, names.AgentAdmissionPolicies()...)
	}
	if f.hasFlag("--pipelines") {
		wanted = append(wanted, names.TektonAdmissionPolicies()...)
	}
	missing := slices.DeleteFunc(wanted, func(name string) bool { return f.Denying[name] })
	if len(missing) > 0 {
		return []Finding{{
			State: Mend, What: "admission policies are missing, or have no binding that denies: " + strings.Join(missing, ", "),
			Why: "without them agents and whoever may change ConfigMaps or Nodes can do more than they should",
			Run: f.installAgain(),
		}}
	}
	return ok("all admission policies are in force")
}

func controller(f *Facts) []Finding {
	switch {
	case f.Denied["deployments"]:
		return notRead("deployments.apps")
	case !f.installed():
		return ok("it is not installed yet")
	case f.Controller.Status.AvailableReplicas == 0:
		return []Finding{{
			State: Mend, What: "the controller is not available", Why: "nothing is built or rolled out",
			Run: "kubectl -n " + f.Namespace + " describe pods -l app.kubernetes.io/component=controller",
		}}
	}
	if f.Controller.Status.UnavailableReplicas > 0 {
		return []Finding{{
			State: Mend, What: "a pod of the controller is not available", Why: "a new version does not start, and the old one works on",
			Run: "kubectl -n " + f.Namespace + " describe pods -l app.kubernetes.io/component=controller",
		}}
	}
	return ok("the controller is available")
}

// agent looks at what agents say of their nodes; before they are installed the cluster does not
// know what a host has.
func agent(f *Facts) []Finding {
	switch {
	case f.Denied["daemonsets"]:
		return notRead("daemonsets.apps")
	case f.Denied["nodes"]:
		return notRead("nodes")
	case f.Namespace == openshiftNamespace:
		return ok("on OpenShift the machine-config-daemon is the agent")
	case f.Agent == nil && f.installed():
		return []Finding{{State: Advice, What: "there is no node agent", Why: "no node is updated", Run: f.installAgain()}}
	case f.Agent == nil:
		systems := map[string]bool{}
		for _, node := range f.Nodes {
			systems[node.Status.NodeInfo.OSImage] = true
		}
		return []Finding{{
			State: Unknown, What: "no agent says what hosts have; they run: " + strings.Join(slices.Sorted(maps.Keys(systems)), ", "),
			Why: "a host needs bootc 1.1 or rpm-ostree 2022.10, or later, to be updated", Run: "layerwright check   # again when it is installed",
		}}
	}
	var all []Finding
	if f.Agent.Status.DesiredNumberScheduled == 0 {
		all = append(all, Finding{
			State: Mend, What: "the agents' DaemonSet selects no node", Why: "no node is updated", Run: "kubectl -n " + f.Namespace + " describe daemonset layerwright-agent",
		})
	}
	if status := f.Agent.Status; status.NumberReady < status.DesiredNumberScheduled {
		all = append(all, Finding{
			State: Mend, What: fmt.Sprintf("%d of %d agents are ready", status.NumberReady, status.DesiredNumberScheduled), Why: "a node without an agent is not updated",
			Run: "kubectl -n " + f.Namespace + " get pods -l app.kubernetes.io/component=agent -o wide",
		})
	}
	for _, node := range f.Nodes {
		switch state := node.Annotations[mcfgv1.AnnotationState]; state {
		case mcfgv1.NodeStateDegraded, mcfgv1.NodeStateUnreconcilable:
			all = append(all, Finding{
				State: Mend, What: fmt.Sprintf("node %q is %s: %s", node.Name, state, node.Annotations[mcfgv1.AnnotationReason]), Why: "it is not updated",
				Run: "kubectl describe machineconfignode " + node.Name,
			})
		}
	}
	if f.installed() && !f.hasFlag("--enforce-signatures") {
		all = append(all, Finding{
			State: Advice, What: "the controller gives nodes no signature policy",
			Why: "agents take an image of a MachineOSConfig only where the host's own /etc/containers/policy.json covers it", Run: f.installAgain() + "   # with signing: docs/signing.md",
		})
	}
	if len(all) > 0 {
		return all
	}
	return ok("all %d agents are ready", f.Agent.Status.DesiredNumberScheduled)
}

func userNamespaces(f *Facts) []Finding {
	if f.Denied["nodes"] {
		return notRead("nodes")
	}
	var without []string
	for _, node := range f.Nodes {
		if !nodes.OffersUserNamespaces(&node) {
			info := node.Status.NodeInfo
			without = append(without, fmt.Sprintf("%s (Linux %s, %s)", node.Name, info.KernelVersion, info.ContainerRuntimeVersion))
		}
	}
	if broken := brokenUserNamespaces(f); len(broken) > 0 {
		return broken
	}
	if len(without) > 0 {
		return []Finding{{
			State: Advice, What: "nodes without user namespaces for pods: " + strings.Join(without, ", "),
			Why: "builds on them are kept from the node by capabilities alone (docs/build-pod.md); user namespaces need about Kubernetes 1.33, containerd 2.0 or CRI-O 1.25, and Linux 6.3",
			Run: "kubectl get nodes -o wide",
		}}
	}
	return ok("all %d nodes have user namespaces for pods", len(f.Nodes))
}

// enforcing are network plugins that enforce NetworkPolicies, by what their DaemonSets are called.
var enforcing = []string{"calico-node", "cilium", "antrea-agent", "ovnkube-node", "kube-router", "weave-net", "canal", "azure-npm", "anetd"}

func networkPolicies(f *Facts) []Finding {
	if f.Pods != nil && f.Pods.Refused == "" {
		return triedNetworkPolicies(f.Pods)
	}
	if f.Denied["daemonsets"] {
		return notRead("daemonsets.apps")
	}
	for _, name := range f.DaemonSets {
		if slices.Contains(enforcing, name) {
			return ok("%s enforces NetworkPolicies", name)
		}
	}
	return []Finding{{
		State: Unknown, What: "no network plugin that is known to enforce NetworkPolicies was found",
		Why: "they keep RUN lines of builds from the cluster's network; k3s enforces them without a DaemonSet, flannel and kindnet's older versions don't",
		Run: "kubectl get daemonsets --all-namespaces",
	}}
}

func tekton(f *Facts) []Finding {
	if f.Denied["customresourcedefinitions"] {
		return notRead("customresourcedefinitions")
	}
	definition, exists := f.Definitions[pipelineRuns]
	release := definition.Labels["pipeline.tekton.dev/release"]
	parsed, err := version.ParseSemantic(release)
	isOld := exists && err == nil && parsed.LessThan(version.MustParseSemantic(oldestTekton))
	var wants []string
	for _, config := range f.Configs {
		if config.Spec.ImageBuilder.ImageBuilderType == mcfgv1.PipelineBuilder {
			wants = append(wants, config.Name)
		}
	}
	if len(wants) > 0 && (!exists || isOld) {
		return []Finding{{
			State: Mend, What: fmt.Sprintf("MachineOSConfig %s builds with Tekton, and there is %s", strings.Join(wants, ", "), tektonIn(exists, release)),
			Why: "their builds wait for Tekton Pipelines v" + oldestTekton + " or later", Run: "kubectl get crd " + pipelineRuns + " --show-labels   # then install it: docs/pipelines.md",
		}}
	}
	return ok("%s", tektonIn(exists, release))
}

func tektonIn(exists bool, release string) string {
	switch {
	case !exists:
		return "no Tekton: builds are Jobs"
	case release == "":
		return "a Tekton that does not say its version"
	}
	return "Tekton Pipelines " + release
}

// streams looks at what the controller says of the images that streams name.
func streams(f *Facts) []Finding {
	if f.Denied["osimagestreams"] {
		return notRead("osimagestreams")
	}
	for _, stream := range f.Streams {
		ready := meta.FindStatusCondition(stream.Status.Conditions, mcfgv1.ConditionReady)
		if ready == nil || ready.Status == metav1.ConditionTrue {
			continue
		}
		state := Mend
		if ready.Status == metav1.ConditionUnknown && !isWaitingForYou(ready.Reason) {
			state = Unknown
		}
		return []Finding{{
			State: state, What: fmt.Sprintf("OSImageStream %q: %s: %s", stream.Name, ready.Reason, ready.Message), Why: "pools without an OS image of their own get theirs from it",
			Run: "kubectl describe osimagestream " + stream.Name,
		}}
	}
	if len(f.Streams) == 0 {
		return ok("no OSImageStream: MachineConfigs or MachineOSConfigs name OS images")
	}
	return ok("OSImageStream %q has no problem", f.Streams[0].Name)
}

// isWaitingForYou reports whether a reason waits for something that a person makes.
func isWaitingForYou(reason string) bool {
	return slices.Contains([]string{mcfgv1.ReasonWaitingForSecret, mcfgv1.ReasonWaitingForConfigMap, mcfgv1.ReasonWaitingForPool, mcfgv1.ReasonWaitingForRemoteFile}, reason)
}

// images looks at what the controller says of MachineOSConfigs, which has tried their registries.
func images(f *Facts) []Finding {
	if f.Denied["machineosconfigs"] {
		return notRead("machineosconfigs")
	}
	var all []Finding
	for _, config := range f.Configs {
		secret := config.Spec.RenderedImagePushSecret.Name
		exists, read := f.Secrets[secret]
		describe := "kubectl describe machineosconfig " + config.Name
		switch ready := meta.FindStatusCondition(config.Status.Conditions, mcfgv1.ConditionReady); {
		case read && !exists:
			all = append(all, Finding{
				State: Mend, What: fmt.Sprintf("MachineOSConfig %q: secret %q is not in namespace %q", config.Name, secret, f.Namespace), Why: "images are pushed with it",
				Run: fmt.Sprintf("kubectl -n %s create secret docker-registry %s --docker-server=... --docker-username=... --docker-password=...", f.Namespace, secret),
			})
		case ready == nil:
			all = append(all, Finding{State: Unknown, What: fmt.Sprintf("MachineOSConfig %q: the controller has not said anything yet", config.Name), Why: "it makes the image", Run: describe})
		case ready.Status == "Unknown" && !isWaitingForYou(ready.Reason):
			all = append(all, Finding{State: Unknown, What: fmt.Sprintf("MachineOSConfig %q: %s: %s", config.Name, ready.Reason, ready.Message), Why: "its image is not ready yet", Run: describe})
		case ready.Status != "True":
			all = append(all, Finding{State: Mend, What: fmt.Sprintf("MachineOSConfig %q: %s: %s", config.Name, ready.Reason, ready.Message), Why: "the pool gets no new image", Run: describe})
		}
	}
	if len(all) > 0 {
		return all
	}
	return ok("%d MachineOSConfigs, none with a problem", len(f.Configs))
}
