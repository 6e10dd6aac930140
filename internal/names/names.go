package names

// ControllerLease is the Lease that the controllers of one installation compete for. The Role in deploy/base grants it by name.
const ControllerLease = "layerwright-controller"
