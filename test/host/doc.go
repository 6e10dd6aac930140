// Command host stands in for bootc and rpm-ostree on hosts that have real deployments of ostree,
// because no distribution of Debian has these two. It is called by their names, takes their command
// lines and answers with their JSON. On hosts without an init system it is systemctl and
// systemd-run too.
//
// Rule: it does what they do, on disk and in the registry. It is never part of a program of the
// product.
package main
