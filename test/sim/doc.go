// Package sim plays rollouts: pools of nodes, agents, drains and people whose moves come from a seed,
// with the real plan of rollout/plan in the middle. Each tick is one pass of everybody who is up.
package sim
