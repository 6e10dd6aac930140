// Package webhook tells people's own systems what happens to rollouts.
//
// Rule: a rollout never waits for it. A message is tried a few times, for a bounded time, and then
// given up.
package webhook
