package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RolloutSpec is how a new image or configuration reaches a pool's nodes. Everything in it is
// optional, and an empty one is the same as none.
type RolloutSpec struct {
	// canary are the nodes that go first, alone. When it is omitted, there are none and the rollout
	// starts with the pool's usual order.
	// +optional
	Canary *RolloutCanary `json:"canary,omitempty"`

	// batches are the groups in which the nodes follow the canaries, one group after the other.
	// Nodes that are in none of them go last. When it is omitted, all nodes follow at once. At most
	// 16, each name once.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Batches []RolloutBatch `json:"batches,omitempty"`

	// afterPools are the names of pools that go before this one: no node changes while one of them
	// has nodes that are not updated and healthy. Nodes stage meanwhile. Pools that wait for each
	// other stop the rollout, with a reason in the condition RolloutDegraded. At most 16.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	AfterPools []string `json:"afterPools,omitempty"`

	// windows are the times at which a node may start to drain or reboot; a node that has started
	// finishes. When it is omitted, any time. At most 16, each name once.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Windows []RolloutWindow `json:"windows,omitempty"`

	// healthChecks have to hold on a node, after its update, before the next one starts. That the
	// node is Ready is always checked. At most 16, each name once.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	HealthChecks []RolloutHealthCheck `json:"healthChecks,omitempty"`

	// haltThreshold is how many failed nodes stop the rollout and quarantine the image: a number
	// from 1, or a percentage of the pool from 1% to 100% (rounded down, but never below one node).
	// When it is omitted, 1 while canaries are being tried, then 10% and at least 2.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : (type(self) == string && self.matches('^([1-9]|[1-9][0-9]|100)%$'))",message="haltThreshold must be a number of at least 1, or a percentage from 1% to 100%"
	HaltThreshold *intstr.IntOrString `json:"haltThreshold,omitempty"`

	// rebootTimeout is how long a node may take from its reboot until it reports the new image,
	// such as "30m", from 1m to 24h; after that it has failed. When it is omitted, 30m.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}(s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="rebootTimeout must be from 1m to 24h, as numbers with the units s, m or h, such as 30m"
	RebootTimeout string `json:"rebootTimeout,omitempty"`

	// automaticRollback is whether nodes that fail with a new image go back to the deployment that
	// is still on their disk: Enabled or Disabled. When it is omitted, Enabled. Disabled leaves a
	// failed node as it is, for people to look at.
	// +optional
	AutomaticRollback Switch `json:"automaticRollback,omitempty"`

	// webhook is told when a rollout starts, halts and is completed, and when a node goes back.
	// When it is omitted, events alone say so. It never holds a rollout.
	// +optional
	Webhook *RolloutWebhook `json:"webhook,omitempty"`

	// silence keeps an Alertmanager from sending alerts of a node while it changes. When it is
	// omitted, no alert is silenced. It never holds a rollout.
	// +optional
	Silence *RolloutSilence `json:"silence,omitempty"`

	// softReboot is whether a drained node restarts its user space and not its kernel, where bootc
	// says of the new image that this is enough: Enabled or Disabled. Other kernel arguments, and a
	// node disruption policy that says Reboot, reboot the node all the same. When it is omitted,
	// Disabled: /run keeps what it has, and what runs in pods was made for a host that reboots.
	// +optional
	SoftReboot Switch `json:"softReboot,omitempty"`

	// staging is how nodes get the new image before they drain. When it is omitted, in the
	// background, ten nodes at a time.
	// +optional
	Staging *RolloutStaging `json:"staging,omitempty"`
}

// Switch turns something on or off.
// +kubebuilder:validation:Enum=Enabled;Disabled
type Switch string

const (
	// Enabled turns it on.
	Enabled Switch = "Enabled"
	// Disabled turns it off.
	Disabled Switch = "Disabled"
)

// RolloutCanary are the nodes that get a new image first. The others wait until the canaries have
// been healthy for the soak time.
type RolloutCanary struct {
	// machineCount is how many nodes go first, 1 to 100. When it is omitted, 1. A pool with fewer
	// nodes takes what it has.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MachineCount *int32 `json:"machineCount,omitempty"`

	// nodeSelector says which of the pool's nodes the canaries are taken from, by label. When it is
	// omitted, from all. One that matches no node stops the rollout, with a reason in
	// status.rollout.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// soakTime is how long the canaries have to stay healthy before the others follow, as a
	// duration such as "30m" or "2h", at most 168h. When it is omitted, 10m.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}(s|m|h))+$') && duration(self) <= duration('168h')",message="soakTime must be at most 168h, as numbers with the units s, m or h, such as 30m"
	SoakTime string `json:"soakTime,omitempty"`
}

// RolloutBatch is a group of nodes that change before those of the next batch.
type RolloutBatch struct {
	// name of the batch, shown while the rollout waits for it. A DNS label of at most 63
	// characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="the name of a batch must consist of lower case letters, digits and '-', and must start and end with a letter or digit"
	Name string `json:"name"`

	// nodeSelector says which nodes the batch is taken from, by label. When it is omitted, from all
	// that are neither a canary nor in a batch before. A batch without nodes is passed over.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// machineCount is how many nodes the batch takes: a number from 1, or a percentage of the pool
	// from 1% to 100% (rounded down, but never below one node). When it is omitted, all that
	// nodeSelector selects.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([1-9]|[1-9][0-9]|100)%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 1",message="machineCount must be a number of at least 1, or a percentage from 1% to 100%"
	MachineCount *intstr.IntOrString `json:"machineCount,omitempty"`

	// successThreshold is how many nodes of the batch have to be healthy before the next batch
	// begins: a number from 1, or a percentage of the batch from 1% to 100% (rounded up). When so
	// many have failed that it can't be reached, the rollout halts. When it is omitted, the next
	// batch begins when each node is healthy or has failed, and haltThreshold alone halts.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([1-9]|[1-9][0-9]|100)%$`
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 1",message="successThreshold must be a number of at least 1, or a percentage from 1% to 100%"
	SuccessThreshold *intstr.IntOrString `json:"successThreshold,omitempty"`
}

// RolloutWindow is a time of the week at which nodes may start to drain or reboot.
type RolloutWindow struct {
	// name of the window, shown while the rollout waits for it. A DNS label of at most 63
	// characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="the name of a window must consist of lower case letters, digits and '-', and must start and end with a letter or digit"
	Name string `json:"name"`

	// days on which the window opens: Monday to Sunday. When it is omitted, every day.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	Days []Weekday `json:"days,omitempty"`

	// start is when the window opens, as hours and minutes of a 24-hour clock: "22:00".
	// +required
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:XValidation:rule="self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')",message="start must be a time of day from 00:00 to 23:59, such as 22:00"
	Start string `json:"start"`

	// duration is how long the window stays open, such as "4h", from 1m to 168h. A window may reach
	// into the next day.
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}(s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration must be from 1m to 168h, as numbers with the units s, m or h, such as 4h or 1h30m"
	Duration string `json:"duration"`

	// timeZone is the time zone of start and days, by its name in the IANA database, such as
	// "Europe/Prague"; changes to summer time are followed. When it is omitted, UTC. A name that
	// the controller does not know closes the window, with a reason in the condition
	// RolloutDegraded.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$')",message="timeZone must be the name of a time zone, such as UTC or Europe/Prague"
	TimeZone string `json:"timeZone,omitempty"`
}

// Weekday is a day of the week.
// +kubebuilder:validation:Enum=Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday
type Weekday string

// RolloutHealthCheck is a condition on a node that has been updated. It is one on the Node itself,
// on the Node and what pods, object or prometheus name, or the success of a job that runs on it.
// Pods and objects take the right of the controller to list and watch them, which an administrator
// gives; without it the rollout waits, with the reason.
// +kubebuilder:validation:XValidation:rule="[has(self.pods), has(self.object), has(self.prometheus), has(self.job)].filter(x, x).size() <= 1",message="a health check must have at most one of pods, object, prometheus and job"
// +kubebuilder:validation:XValidation:rule="has(self.job) != has(self.expression)",message="expression is required without job, and forbidden with job"
type RolloutHealthCheck struct {
	// name of the check, shown when it does not hold. A DNS label of at most 63 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="the name of a health check must consist of lower case letters, digits and '-', and must start and end with a letter or digit"
	Name string `json:"name"`

	// expression in CEL, true when the node is healthy. The variable "node" is the Node object, for
	// example node.status.conditions.exists(c, c.type == "Ready" && c.status == "True"); pods,
	// object and prometheus bring further ones. One that gives a text says what is wrong, and the
	// empty text means healthy. It is compiled when the pool is read: one that does not compile, or
	// gives something else, stops the rollout with the compiler's words in the condition
	// RolloutDegraded. At most 4096 characters. A check with a job has none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression,omitempty"`

	// pods makes those on the node the variable "pods", a list, for example pods.all(p,
	// p.status.phase == "Running"). When it is omitted, there is no such variable.
	// +optional
	Pods *RolloutHealthPods `json:"pods,omitempty"`

	// object is what the variable "object" is, for example int(object.status.readyReplicas) >= 2.
	// When it is omitted, there is no such variable.
	// +optional
	Object *RolloutHealthObject `json:"object,omitempty"`

	// prometheus makes the answer to a query the variable "result", a list of samples that have
	// labels and a value, for example size(result) > 0 && result.all(s, s.value < 0.9). When it is
	// omitted, there is no such variable.
	// +optional
	Prometheus *RolloutHealthPrometheus `json:"prometheus,omitempty"`

	// job is the manifest of a Job that runs once on each node after its update: its success means
	// healthy, and its failure that the node has failed. It is in a ConfigMap, at the key
	// "job.yaml" unless job.key names another, and may do what tests of images may
	// (spec.verification of a MachineOSConfig), but choose its node.
	// +optional
	Job *ConfigMapKeyReference `json:"job,omitempty"`

	// timeout is how long the node has to become healthy after its update, and again whenever the
	// check ceases to hold, such as "10m", from 1s to 24h; after that it has failed. A job has as
	// long from when it was created. When it is omitted, 10m.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}(s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="timeout must be from 1s to 24h, as numbers with the units s, m or h, such as 10m"
	Timeout string `json:"timeout,omitempty"`
}

// RolloutHealthPods says which pods of a node a health check reads.
type RolloutHealthPods struct {
	// namespace of the pods.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// selector says which of them, by label. When it is omitted, all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// RolloutHealthObject is an object that a health check reads. It can't be a Secret or a
// MachineConfig.
type RolloutHealthObject struct {
	// apiVersion of the object, such as apps/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion"`

	// kind of the object, such as Deployment.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// namespace of the object. When it is omitted, the kind has none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// RolloutHealthPrometheus is a query that a health check reads the answer to. While updated nodes
// have to prove themselves, it is asked every 30 seconds, once for all nodes of the pool.
type RolloutHealthPrometheus struct {
	// secretName is the name of a Secret in Layerwright's namespace: its key "url" is the address,
	// http or https, before /api/v1/query; "token", which may be absent, is sent as a bearer token,
	// and "ca.crt", which may be absent, has the certificates that the server is trusted by.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`

	// query in PromQL, for an instant vector or a scalar. It is asked as it is. At most 4096
	// characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query"`

	// nodeLabel is the label of samples that has the name of their node: then result has the
	// samples of the node that is checked, and is empty where there is none. When it is omitted,
	// result has all samples.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z_][a-zA-Z0-9_]*$')",message="nodeLabel must be the name of a label, such as node or instance"
	NodeLabel string `json:"nodeLabel,omitempty"`
}

// RolloutWebhook is an address that gets a POST request with a JSON body for what happens to a
// rollout. docs/rollout.md describes the body.
type RolloutWebhook struct {
	// secretName is the name of a Secret in Layerwright's namespace: its key "url" is the address,
	// http or https; "token", which may be absent, is sent as a bearer token, and "ca.crt", which
	// may be absent, are the CA certificates in PEM that are trusted instead of the system's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
}

// RolloutSilence is an Alertmanager that sends no alerts of a node while it changes. Each silence
// ends by itself a few minutes after the controller has ceased to renew it.
type RolloutSilence struct {
	// secretName is the name of a Secret in Layerwright's namespace: its key "url" is the address
	// of the Alertmanager without /api/v2, http or https; "token", which may be absent, is sent as
	// a bearer token, and "ca.crt", which may be absent, are the CA certificates in PEM that are
	// trusted instead of the system's.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`

	// label is the one by which alerts name their node; its value is the name of the Node. When it
	// is omitted, node.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z_][a-zA-Z0-9_]*$')",message="label must be the name of a label of alerts, such as node"
	Label string `json:"label,omitempty"`
}

// RolloutStaging is how nodes get a new image before they drain.
type RolloutStaging struct {
	// mode is when a node pulls and stages the image: Background while it still runs its workload,
	// or OnDrain when it has a slot. When it is omitted, Background.
	// +optional
	// +kubebuilder:validation:Enum=Background;OnDrain
	Mode StagingMode `json:"mode,omitempty"`

	// maxParallel is how many nodes pull at once, 1 to 1000; it keeps a registry from being
	// overrun. When it is omitted, 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxParallel *int32 `json:"maxParallel,omitempty"`
}

// StagingMode is when a node pulls and stages an image.
type StagingMode string

const (
	// StagingBackground stages while the node still runs its workload.
	StagingBackground StagingMode = "Background"
	// StagingOnDrain stages when the node's turn has come.
	StagingOnDrain StagingMode = "OnDrain"
)

// RolloutStatus is how far a rollout is.
type RolloutStatus struct {
	// summary is the rollout in a few words, for people: "3/9 updated", "canary soaking", "waits
	// for window nightly", "halted".
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Summary string `json:"summary,omitempty"`

	// targetImagePullSpec is the image, by digest, that is being rolled out.
	// +optional
	TargetImagePullSpec ImageDigestFormat `json:"targetImagePullSpec,omitempty"`

	// targetConfiguration is the rendered MachineConfig that is being rolled out.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	TargetConfiguration string `json:"targetConfiguration,omitempty"`

	// startTime is when the first node was asked to change.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// supersededStartTime is the startTime of the rollout before this one, where no node had proven
	// its image when this one took its place. Nodes that it changed go back to what they had before
	// it.
	// +optional
	SupersededStartTime *metav1.Time `json:"supersededStartTime,omitempty"`

	// completionTime is when the last node was healthy with the image.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// estimatedCompletionTime is when the last node will be updated, if the others take as long as
	// those that are. It is omitted while no node has been updated, and when all are.
	// +optional
	EstimatedCompletionTime *metav1.Time `json:"estimatedCompletionTime,omitempty"`

	// cost is what the rest of the rollout costs. It is omitted when all nodes have the image, and
	// while nothing is rolled out.
	// +optional
	Cost *RolloutCost `json:"cost,omitempty"`

	// machineUpdateSeconds is how long the update of a node takes from the time that it is told to
	// change, as the last nodes took that were drained; a later one weighs more. It is omitted
	// while no node has been updated, and is kept for the next rollout.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MachineUpdateSeconds *int64 `json:"machineUpdateSeconds,omitempty"`

	// canarySoakEndTime is when the canaries will have been healthy for long enough. It is omitted
	// while one of them is not healthy.
	// +optional
	CanarySoakEndTime *metav1.Time `json:"canarySoakEndTime,omitempty"`

	// stagedMachineCount is the number of nodes that hold the image and have not booted it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StagedMachineCount int32 `json:"stagedMachineCount"`

	// updatedMachineCount is the number of nodes that have booted the image and are healthy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpdatedMachineCount int32 `json:"updatedMachineCount"`

	// failedMachineCount is the number of nodes that failed with the image; at haltThreshold the
	// rollout stops.
	// +optional
	// +kubebuilder:validation:Minimum=0
	FailedMachineCount int32 `json:"failedMachineCount"`

	// rolledBackMachineCount is the number of nodes that went back to the image they had before.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RolledBackMachineCount int32 `json:"rolledBackMachineCount"`

	// waitingFor are the nodes, windows or pods that the rollout waits for at this moment, in
	// words. At most 16 lines.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	WaitingFor []string `json:"waitingFor,omitempty"`
}

// RolloutCost is what the rest of a rollout costs: what happens to the nodes that do not have the
// image, without those that failed with it.
type RolloutCost struct {
	// summary is the cost in words, for people: "5 nodes reboot, 1 node changes as it runs, about
	// 20m, at most 180 MB a node".
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Summary string `json:"summary,omitempty"`

	// rebootMachineCount is the number of nodes that are drained and reboot.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RebootMachineCount int32 `json:"rebootMachineCount"`

	// softRebootMachineCount is the number of nodes that are drained and restart their user space.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SoftRebootMachineCount int32 `json:"softRebootMachineCount"`

	// drainMachineCount is the number of nodes that are drained and do not reboot.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DrainMachineCount int32 `json:"drainMachineCount"`

	// liveMachineCount is the number of nodes that change while their pods run on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LiveMachineCount int32 `json:"liveMachineCount"`

	// unknownMachineCount is the number of nodes of which it is not known, because they have not
	// staged the image yet, or their agent does not say it. Most of them reboot, as a rule.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UnknownMachineCount int32 `json:"unknownMachineCount"`

	// durationSeconds is how long it takes if each node that is or may be drained takes
	// machineUpdateSeconds, and as many go at a time as maxUnavailable allows. What canaries,
	// windows and other pools make it wait for is not in it. It is omitted while
	// machineUpdateSeconds is not known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DurationSeconds *int64 `json:"durationSeconds,omitempty"`

	// pullBytes is how many bytes a node pulls at most that has not staged the image: the layers
	// that what it runs does not have, or all where that is not known. It is omitted where the
	// MachineOSImage does not say it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PullBytes *int64 `json:"pullBytes,omitempty"`
}
