// Package vsphere imports boot images as templates: vSphere starts machines from its own inventory.
//
// Rule: a template gets its name last, when all of it is there and its checksum is right. What has
// that name is never changed, and what was left behind by an import that was interrupted is removed
// by the next one. Credentials are those that the Machine API makes machines with.
package vsphere
