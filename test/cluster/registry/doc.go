// Package registry serves a real OCI registry (distribution v3) with basic
// authentication and accounts that may push or only pull. Distribution itself
// lets every account that it knows do everything, which would hide the errors
// that users of real registries meet.
package registry
