// Package hostcheck finds out whether a host can do what the node agent asks of it, and says it in
// a report that can be given to others.
//
// Rule: it asks the host by package host, as the agent does, and judges by nothing else. It changes
// the host only when it is told to, and leaves nothing there. No value of a kernel argument is in
// its report.
package hostcheck
