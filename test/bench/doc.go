// Package bench measures the budgets that Layerwright promises, on real parts
// of this machine. It needs root and is built with the tag e2e:
//
//	make bench
//
// Each benchmark reports what it measured and, as "of-budget", which part of
// its budget that is: below 1 the promise holds. The figures of a busy machine
// say little; nothing here fails because of time.
package bench
