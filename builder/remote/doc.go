// Package remote fetches the files that MachineConfigs name by URL instead of holding them.
//
// Rule: it brings bytes and nothing else. Whether they are the right ones is checked against their
// hash where they are used; what the administrator sends along to get them (headers may hold a
// token) goes to the host that he named and to no other.
package remote
