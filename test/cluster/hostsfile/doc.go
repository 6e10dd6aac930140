// Package hostsfile gives a cluster's registry its name on the host: one
// marked line in the hosts file, added by up and removed by down.
package hostsfile
