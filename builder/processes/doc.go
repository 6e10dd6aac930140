// Package processes builds content on this machine: the steps of a build pod run one after the
// other, as processes.
//
// Rule: a step gets what its container would have and nothing else of the machine, in a user
// namespace: neither the environment nor, while RUN lines run, credentials.
package processes
