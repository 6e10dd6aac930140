// Package turns lets few at a time do what waits for the network and takes much memory meanwhile.
//
// Rule: no one waits here for long, since who waits holds a worker that others need. Who gets no
// turn soon is told who has it, as fault.Waiting, and asks again. One registry has one turn at
// most, so that what is slow or silent there is no one else's business.
package turns
