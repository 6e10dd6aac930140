package webhook

import "time"

// Event is what has happened.
type Event string

// The events.
const (
	// Started means that the first node of a pool was told to change.
	Started Event = "RolloutStarted"
	// Halted means that no further node gets the target until a person acts.
	Halted Event = "RolloutHalted"
	// RolledBack means that a node which failed was told to go back.
	RolledBack Event = "NodeRolledBack"
	// Completed means that all nodes of the pool have the target and are healthy.
	Completed Event = "RolloutCompleted"
)

// schema is the version of the messages. Fields may be added to one, and none is changed.
const schema = "v1"

// Message is the body of a request.
type Message struct {
	// Schema is "v1". Send sets it.
	Schema string `json:"schema"`
	// Event is what has happened, and Time when.
	Event Event     `json:"event"`
	Time  time.Time `json:"time"`
	// Pool is the name of the MachineConfigPool.
	Pool string `json:"pool"`
	// Configuration and Image are what is being rolled out: a rendered MachineConfig, and an image
	// by digest.
	Configuration string `json:"configuration"`
	Image         string `json:"image"`
	// Node is the name of the node; of NodeRolledBack only.
	Node string `json:"node,omitempty"`
	// Text says it in words, and why.
	Text string `json:"text"`
	// Nodes are how far the rollout is.
	Nodes Nodes `json:"nodes"`
}

// Nodes count the nodes of the pool.
type Nodes struct {
	Total   int `json:"total"`
	Updated int `json:"updated"`
	Failed  int `json:"failed"`
}
