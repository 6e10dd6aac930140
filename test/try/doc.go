// Command try shows in seconds what Layerwright does, without root and without a cluster: `make
// try`.
package main
