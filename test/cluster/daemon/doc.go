// Package daemon starts long-running processes that outlive the program that
// started them, waits until they are ready, finds them again in a later run,
// and stops them.
//
// A process is known by a record on disk (pid, start time, fingerprint of what
// was started), so that a run which was killed half-way can be repeated: what
// still runs as wanted is adopted, what differs is replaced, what is dead is
// started. Readiness is an event that the process itself gives (the sd_notify
// protocol, or a line in its log); nothing here sleeps.
package daemon
