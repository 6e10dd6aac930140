// Package selected lists the MachineConfigs that a pool selects, from the cache, which has them
// without spec.config, or from the API server.
package selected
