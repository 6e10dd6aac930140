// Package power is the line between a host and what it runs on: a host asks to be switched off or
// on again, and whoever owns the machine does it. It is a folder that outlives boots.
package power
