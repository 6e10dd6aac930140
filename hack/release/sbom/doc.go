// Package sbom makes SBOMs of programs: SPDX documents that list the Go modules each was built
// from, as the Go tool has recorded them in it, and what is linked in or laid beside it from
// elsewhere.
//
// Rule: it lists what the programs say of themselves, and asks no one. The same programs give the
// same bytes.
package sbom
