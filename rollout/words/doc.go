// Package words has the texts that people read about a rollout: why a node does not move, the lines
// of status.rollout, and how long texts become short.
//
// Rule: pure, and the only place of these texts. rollout/plan writes them, and view finds them in
// status.rollout again and says what to do.
package words
