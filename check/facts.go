package check

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/check/probe"
)

// Facts are what is known of a cluster.
type Facts struct {
	// Namespace is where Layerwright is, or will be, and Level the Pod Security level that the
	// namespace enforces; empty where it says none.
	Namespace, Level string
	// HasNamespace says that the namespace is there.
	HasNamespace bool
	// Version is that of the API server, such as v1.36.3.
	Version string
	// ServerTime and LocalTime are those at which it was asked.
	ServerTime, LocalTime time.Time
	// Denied are the kinds that the user may not read, in the plural, such as "nodes".
	Denied map[string]bool
	// Rights are those that installing takes, and whether the user has them.
	Rights map[Right]bool
	// Definitions are those of Layerwright's kinds, and Tekton's PipelineRun.
	Definitions map[string]metav1.PartialObjectMetadata
	// Denying are the admission policies that are there and have a binding that denies.
	Denying map[string]bool
	// Controller and Agent are nil where they are not installed.
	Controller *appsv1.Deployment
	Agent      *appsv1.DaemonSet
	// DaemonSets are those of all namespaces, by which a network plugin is known.
	DaemonSets []string
	Nodes      []corev1.Node
	// Heartbeats are the Leases that nodes renew, by the names of nodes.
	Heartbeats map[string]coordinationv1.Lease
	Streams    []mcfgv1.OSImageStream
	Configs    []mcfgv1.MachineOSConfig
	// Secrets are those that the MachineOSConfigs push with, and whether they are there; without
	// those that the user may not read.
	Secrets map[string]bool
	// Anchors are the pools whose nodes trust certificate authorities by a MachineConfig.
	Anchors map[string]bool
	// Pods are what pods found; nil where none were asked for.
	Pods *Pods
}

// Pods are what pods found that were started for that.
type Pods struct {
	// Refused is why none were started; empty where they were. Left is why they were not removed.
	Refused, Left string
	// Open and Closed are two that listen; NetworkPolicies close the second.
	Open, Closed Pod
	// Nodes are those that asked, one on each node that takes builds; Untried is how many nodes
	// more there are.
	Nodes   []Pod
	Untried int
}

// Pod is what a pod found.
type Pod struct {
	// Name is that of the pod, and Node where it ran or should have.
	Name, Node string
	// Address is where it listens; empty for one that asks.
	Address string
	// UserNamespace says that it was to have one, as its node offers them.
	UserNamespace bool
	// Report is what it found; nil where it did not end.
	Report *probe.Report
	// Stuck is why it did not start, or end. IsPull says that it was for its image.
	Stuck  string
	IsPull bool
	// Warning is the reason of the kubelet's last warning, where Stuck has its message.
	Warning string
	// Created is when it was made and Seen when its end was seen, by the API server's clock;
	// Started and Finished are by the node's.
	Created, Seen, Started, Finished time.Time
	// unexplained is the pod of whose being stuck an event may say why.
	unexplained types.UID
}

// Right is to do something with all objects of a kind.
type Right struct{ Verb, Group, Resource string }

// installed reports whether there is a controller.
func (f *Facts) installed() bool { return f.Controller != nil }

// hasFlag reports whether the controller runs with a flag.
func (f *Facts) hasFlag(flag string) bool {
	return f.installed() && slices.ContainsFunc(f.Controller.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Args, func(arg string) bool { return arg == flag || arg == flag+"=true" })
	})
}

// installAgain is the command that puts right what was installed, in the way that it was.
func (f *Facts) installAgain() string {
	if f.Namespace == openshiftNamespace {
		return "kubectl apply --server-side --force-conflicts -f install-openshift.yaml"
	}
	if f.installed() && f.Controller.Annotations["meta.helm.sh/release-name"] != "" {
		return "helm upgrade " + f.Controller.Annotations["meta.helm.sh/release-name"] + " layerwright-<version>.tgz --namespace " + f.Namespace
	}
	// -f after -k would remove pull secrets and authorities.
	return "kubectl apply --server-side --force-conflicts -k .   # or -f install.yaml, where you have no kustomization.yaml: docs/install.md"
}
