// Package nodestate brings to a host what of its configuration no image carries: SSH keys and
// password hashes, files below /var, and the content of MachineConfigs with the annotation
// nodeOnly. It lends the host the signature policy that its first layered image needs, and finds
// files of /etc that were edited.
//
// Rule: what is to be done is decided by pure functions (Of, Plan) from what the host has. What was
// there before is on the host's disk before anything is replaced, so that a process that was killed
// between any two steps goes on from there, and Revert brings all of it back.
package nodestate
