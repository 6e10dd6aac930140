// Package credentials makes clients for registries from the secrets that MachineOSConfigs name.
//
// Rule: a secret that is missing or can't be used is waited for; what can be used is returned
// beside the error.
package credentials
