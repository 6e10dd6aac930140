// Package e2e tests Layerwright and its playground on a real cluster, through
// the programs that people use. It needs root and is built with the tag e2e:
//
//	make e2e
package e2e
