// Command layerwright is the program that runs in the cluster: one binary whose sub-commands are
// its roles.
//
// This package only wires: flags to options, options to a manager, parts to that manager. Behaviour
// lives in the packages it wires together, and nothing imports it.
//
// Exit codes: 0 success, 1 the work failed (one line on standard error says how), 2 the command
// line was wrong, 3 something is for you to mend or to decide, 4 what was waited for has failed, 5
// it did not end in time.
package main
