// Package healthchecks judges the nodes of pools by their health checks: it gathers what the
// expressions of rollout/health read, and has Jobs run on nodes.
//
// Rule: Judge reads, and says what every check says of every node that has to prove something. Run
// creates and deletes the Jobs that Judge found to be needed or not, and is the only one that
// writes. What is known of a Job's node is in the Job.
package healthchecks
