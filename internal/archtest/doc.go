// Package archtest keeps the import rule of docs/architecture.md: who may import whom, which
// folders stay pure, and which binaries stay light.
//
// The rules are data (rules.go), each with the reason that a person reads when a build breaks it.
// Rules for folders that do not exist yet match nothing until someone makes them. The package holds
// no product code and is imported by its own test and by hack/house only; it reads the source with
// "go list" and the standard parser. The linter's depguard section repeats the part that editors
// should show while one types; this test is the authority, because it also sees whole dependency
// graphs and the clock.
package archtest
