// Package sim plays rollouts: pools of nodes, agents, drains and people whose moves come from a
// seed, with the real plan of rollout/plan in the middle. Each tick is one reconcile of everyone
// who is up.
package sim
