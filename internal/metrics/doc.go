// Package metrics holds the metrics that Layerwright defines itself, beside those of
// controller-runtime.
//
// Every name starts with "layerwright_", but for those that dashboards and alerts of OpenShift know
// already. Collectors are made by functions and registered by the caller: importing the package
// changes no registry. Who may read them is asked by hand, because controller-runtime's filter
// links the library of API servers (docs/adr/0001-layout.md).
package metrics
