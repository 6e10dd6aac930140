// Package webhook tells people's own systems what happens to rollouts.
//
// Rule: a rollout never waits for it. A message is tried a few times, for a bounded time, and then
// given up. Neither the address nor the token of a webhook is ever in a log or an error: both may
// be secret.
package webhook
