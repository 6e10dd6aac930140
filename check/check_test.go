package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/names"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// healthy is a cluster with Layerwright and two nodes, where all is well.
func healthy() *Facts {
	f := &Facts{
		Namespace: "layerwright", Level: "privileged", HasNamespace: true, Version: "v1.36.3", ServerTime: noon, LocalTime: noon,
		Denied: map[string]bool{}, Rights: map[Right]bool{}, Definitions: map[string]metav1.PartialObjectMetadata{}, Denying: map[string]bool{},
		Controller: &appsv1.Deployment{
			Spec:   appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Args: []string{"--enforce-signatures"}}}}}},
			Status: appsv1.DeploymentStatus{AvailableReplicas: 1},
		},
		Agent:      &appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, NumberReady: 2}},
		DaemonSets: []string{"cilium"}, Heartbeats: map[string]coordinationv1.Lease{}, Secrets: map[string]bool{"push": true},
		Configs: []mcfgv1.MachineOSConfig{{
			ObjectMeta: metav1.ObjectMeta{Name: "worker"},
			Spec: mcfgv1.MachineOSConfigSpec{
				RenderedImagePushSecret: mcfgv1.ImageSecretObjectReference{Name: "push"}, ImageBuilder: mcfgv1.MachineOSImageBuilder{ImageBuilderType: mcfgv1.JobBuilder},
			},
			Status: mcfgv1.MachineOSConfigStatus{Conditions: []metav1.Condition{{Type: mcfgv1.ConditionReady, Status: metav1.ConditionTrue}}},
		}},
	}
	for _, name := range kindNames {
		f.Definitions[name] = metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "layerwright"}}}
	}
	for _, name := range append(names.AdmissionPolicies(), names.AgentAdmissionPolicies()...) {
		f.Denying[name] = true
	}
	for _, name := range []string{"node1", "node2"} {
		f.Nodes = append(f.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}, Status: corev1.NodeStatus{
			Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo:        corev1.NodeSystemInfo{OSImage: "Fedora CoreOS 44", KernelVersion: "6.18.0", ContainerRuntimeVersion: "containerd://2.4.2"},
			RuntimeHandlers: []corev1.NodeRuntimeHandler{{Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: new(true)}}},
		}})
		f.Heartbeats[name] = coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(noon.Add(-5 * time.Second)))}}
	}
	return f
}

// bare is a cluster without Layerwright.
func bare(f *Facts) {
	f.Controller, f.Agent, f.HasNamespace, f.Level, f.Configs = nil, nil, false, "", nil
	clear(f.Definitions)
	clear(f.Denying)
}

func TestOf(t *testing.T) {
	t.Parallel()
	owned := func(change func(*metav1.PartialObjectMetadata)) func(*Facts) {
		return func(f *Facts) {
			definition := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: kindNames[2]}}
			change(&definition)
			f.Definitions[kindNames[2]] = definition
		}
	}
	before := func(change func(*Facts)) func(*Facts) {
		return func(f *Facts) {
			bare(f)
			change(f)
		}
	}
	tests := map[string]struct {
		change func(*Facts)
		check  string
		state  State
		what   string
	}{
		"an API server that is too old": {func(f *Facts) { f.Version = "v1.29.4" }, "api-server", Mend, "is Kubernetes v1.29.4"},
		"a version of a vendor":         {func(f *Facts) { f.Version = "v1.34.1+k3s1" }, "api-server", OK, "v1.34.1+k3s1"},
		"no version":                    {func(f *Facts) { f.Version = "" }, "api-server", Unknown, `version ""`},
		"this machine's clock is wrong": {func(f *Facts) { f.LocalTime = noon.Add(2 * time.Minute) }, "clocks", Advice, "2m0s apart"},
		"a node's clock is ahead": {func(f *Facts) {
			f.Heartbeats["node2"].Spec.RenewTime.Time = noon.Add(5 * time.Minute)
		}, "clocks", Mend, `node "node2" is about 5m0s`},
		"a node that is down renews nothing": {func(f *Facts) {
			f.Heartbeats["node2"].Spec.RenewTime.Time = noon.Add(-time.Hour)
			f.Nodes[1].Status.Conditions[0].Status = corev1.ConditionUnknown
		}, "clocks", OK, "agree"},
		"rights are missing before it is installed": {func(f *Facts) {
			bare(f)
			f.Rights[Right{"create", "apps", "daemonsets"}], f.Rights[Right{"create", "", "namespaces"}] = false, true
		}, "rights", Mend, "you may not: create daemonsets.apps"},
		"no kinds yet": {bare, "kinds", OK, "none is in its way"},
		"a kind has an owner": {before(owned(func(d *metav1.PartialObjectMetadata) {
			d.Labels = map[string]string{"app.kubernetes.io/managed-by": "other"}
		})), "kinds", Mend, kindNames[2] + ": owned by other"},
		"a kind has an owner, and Layerwright was installed beside it": {owned(func(d *metav1.PartialObjectMetadata) {
			d.Labels = map[string]string{"app.kubernetes.io/managed-by": "other"}
		}), "kinds", Advice, kindNames[2] + ": owned by other"},
		"a kind of another operator": {before(owned(func(d *metav1.PartialObjectMetadata) {
			d.Labels = map[string]string{"operators.coreos.com/other.os": ""}
		})), "kinds", Mend, "owned by operator other.os"},
		"a kind that was applied by hand": {before(owned(func(d *metav1.PartialObjectMetadata) {
			d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "terraform"}}
		})), "kinds", Mend, "owned by field manager terraform"},
		"OpenShift's kinds, in another namespace": {owned(func(d *metav1.PartialObjectMetadata) {
			d.Annotations = map[string]string{"include.release.openshift.io/self-managed-high-availability": "true"}
		}), "kinds", Mend, "OpenShift owns 1"},
		"a kind was deleted":         {func(f *Facts) { delete(f.Definitions, kindNames[0]) }, "kinds", Mend, "missing: " + kindNames[0]},
		"the namespace is strict":    {func(f *Facts) { f.Level = "restricted" }, "namespace", Mend, "level restricted"},
		"the namespace says nothing": {func(f *Facts) { f.Level = "" }, "namespace", Advice, "default Pod Security level"},
		"a policy of Tekton's does not deny": {func(f *Facts) {
			f.Controller.Spec.Template.Spec.Containers[0].Args = []string{"--pipelines"}
		}, "admission-policies", Mend, names.TektonAdmissionPolicies()[0]},
		"nodes get no policy": {func(f *Facts) { f.Controller.Spec.Template.Spec.Containers = nil }, "agent", Advice, "no signature policy"},
		"an image waits for a person": {func(f *Facts) {
			f.Configs[0].Status.Conditions[0] = metav1.Condition{Type: mcfgv1.ConditionReady, Status: metav1.ConditionUnknown, Reason: mcfgv1.ReasonWaitingForSecret, Message: "pull"}
		}, "images", Mend, "WaitingForSecret: pull"},
		"an image is tried again": {func(f *Facts) {
			f.Configs[0].Status.Conditions[0] = metav1.Condition{Type: mcfgv1.ConditionReady, Status: metav1.ConditionUnknown, Reason: mcfgv1.ReasonRetrying, Message: "no route"}
		}, "images", Unknown, "Retrying: no route"},
		"a stream can't be used": {func(f *Facts) {
			f.Streams = []mcfgv1.OSImageStream{{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Status: mcfgv1.OSImageStreamStatus{
				Conditions: []metav1.Condition{{Type: mcfgv1.ConditionReady, Status: metav1.ConditionFalse, Reason: "LabelsContradictory", Message: "image is of another stream"}},
			}}}
		}, "streams", Mend, `OSImageStream "cluster": LabelsContradictory: image is of another stream`},
		"no stream":                       {func(*Facts) {}, "streams", OK, "no OSImageStream"},
		"no namespace yet":                {bare, "namespace", OK, "installing creates it"},
		"a policy does not deny":          {func(f *Facts) { f.Denying["layerwright-pods"] = false }, "admission-policies", Mend, "layerwright-pods"},
		"the controller is not up":        {func(f *Facts) { f.Controller.Status.AvailableReplicas = 0 }, "controller", Mend, "not available"},
		"hosts before any agent":          {bare, "agent", Unknown, "Fedora CoreOS 44"},
		"there are no agents":             {func(f *Facts) { f.Agent = nil }, "agent", Advice, "no node agent"},
		"agents run nowhere":              {func(f *Facts) { f.Agent.Status = appsv1.DaemonSetStatus{} }, "agent", Mend, "selects no node"},
		"a new controller does not start": {func(f *Facts) { f.Controller.Status.UnavailableReplicas = 1 }, "controller", Mend, "a pod of the controller"},
		"deployments may not be read":     {func(f *Facts) { f.Controller, f.Denied["deployments"] = nil, true }, "rights", Unknown, "you may not list deployments"},
		"an agent is not ready":           {func(f *Facts) { f.Agent.Status.NumberReady = 1 }, "agent", Mend, "1 of 2 agents"},
		"an agent reports its host": {func(f *Facts) {
			f.Nodes[0].Annotations[mcfgv1.AnnotationState] = mcfgv1.NodeStateDegraded
			f.Nodes[0].Annotations[mcfgv1.AnnotationReason] = "the host has neither bootc nor rpm-ostree"
		}, "agent", Mend, `node "node1" is Degraded: the host has neither`},
		"a node without user namespaces": {func(f *Facts) { f.Nodes[1].Status.RuntimeHandlers = nil }, "user-namespaces", Advice, "node2 (Linux 6.18.0, containerd://2.4.2)"},
		"an unknown network plugin":      {func(f *Facts) { f.DaemonSets = []string{"kube-flannel-ds"} }, "network-policies", Unknown, "no network plugin"},
		"Tekton is wanted and old": {func(f *Facts) {
			f.Configs[0].Spec.ImageBuilder.ImageBuilderType = mcfgv1.PipelineBuilder
			f.Definitions[pipelineRuns] = metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pipeline.tekton.dev/release": "v1.6.0"}}}
		}, "tekton", Mend, "worker builds with Tekton, and there is Tekton Pipelines v1.6.0"},
		"Tekton is wanted and missing": {func(f *Facts) {
			f.Configs[0].Spec.ImageBuilder.ImageBuilderType = mcfgv1.PipelineBuilder
		}, "tekton", Mend, "there is no Tekton"},
		"the push secret is missing": {func(f *Facts) { f.Secrets["push"] = false }, "images", Mend, `secret "push" is not in namespace "layerwright"`},
		"the controller reports the registry": {func(f *Facts) {
			f.Configs[0].Status.Conditions[0] = metav1.Condition{Type: mcfgv1.ConditionReady, Status: metav1.ConditionFalse, Reason: "RegistryUnreachable", Message: "no route"}
		}, "images", Mend, "RegistryUnreachable: no route"},
		"nodes may not be read": {func(f *Facts) { f.Denied["nodes"] = true }, "user-namespaces", Unknown, "you may not list nodes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := healthy()
			test.change(facts)
			var found []Finding
			for _, finding := range Of(facts) {
				if finding.Check == test.check {
					found = append(found, finding)
				}
			}
			require.Len(t, found, 1)
			assert.Equal(t, test.state, found[0].State)
			assert.Contains(t, found[0].What, test.what)
			if found[0].State != OK {
				assert.NotEmpty(t, found[0].Why)
				assert.NotEmpty(t, found[0].Run)
			}
		})
	}
}

func TestAHealthyClusterHasNothingToMend(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Facts){"installed": func(*Facts) {}, "bare": bare} {
		facts := healthy()
		change(facts)
		for _, finding := range Of(facts) {
			assert.NotEqual(t, Mend, finding.State, "%s: %+v", name, finding)
		}
	}
}

func TestInstallAgain(t *testing.T) {
	t.Parallel()
	f := healthy()
	assert.Regexp(t, "^kubectl apply .* -k [.] .*# or -f install.yaml", f.installAgain(), "-f would remove what a kustomization adds")
	f.Controller.Annotations = map[string]string{"meta.helm.sh/release-name": "lw"}
	assert.Equal(t, "helm upgrade lw layerwright-<version>.tgz --namespace layerwright", f.installAgain())
	f.Namespace = openshiftNamespace
	assert.Contains(t, f.installAgain(), "-f install-openshift.yaml")
}
