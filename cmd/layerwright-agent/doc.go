// Command layerwright-agent is the program that runs on every node: it brings its host to what the
// Node's annotations ask for.
//
// This package only wires: flags to options, options to a manager, the agent to that manager.
// Behaviour lives in rollout/agent, and nothing imports this package.
//
// Exit codes: 0 success, 1 the work failed (one line on standard error says how), 2 the command
// line was wrong, 3 host-check has found something to mend.
package main
