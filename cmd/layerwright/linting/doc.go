// Package linting says what files have wrong, without a cluster and without a registry.
//
// Rule: it finds nothing itself. The rules of Containerfiles are those of containerfiles/lint, and
// MachineConfigs are read and joined as for an image.
package linting
