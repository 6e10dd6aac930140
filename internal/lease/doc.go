// Package lease keeps a process from writing when its Lease has run out without its knowledge.
package lease
