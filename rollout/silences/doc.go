// Package silences keeps an Alertmanager from sending alerts of nodes that change.
//
// Rule: a rollout never waits for it, and nothing is remembered that the Alertmanager does not know
// too: each silence is found by who made it and what for, renewed while it is wanted, and ends by
// itself when it is not renewed.
package silences
