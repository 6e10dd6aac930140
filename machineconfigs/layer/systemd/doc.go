// Package systemd enables and disables units in a file tree as systemctl does with --root: by the
// [Install] sections of units and their drop-ins, and by preset files, only with symbolic links
// below /etc/systemd/system.
//
// Rule: pure, and faithful. The tree is handed in, nothing else is read, and what comes out is what
// systemctl would have left. Tests hold it against the real program. Where systemctl would have to
// know the machine, such as for a host name in [Install], this package refuses.
package systemd
