// Package install does what docs/install.md says on a playground that has nothing of Layerwright.
package install
