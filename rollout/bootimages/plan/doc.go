// Package plan decides what becomes of the boot image of one machine resource: a MachineSet, a
// ControlPlaneMachineSet or a MachineDeployment.
//
// Rule: it is pure, and it never guesses. A specification that it does not fully understand is
// skipped with a reason or refused with an error; a patch changes the fields of the image and,
// where that was asked for, the reference to the user data, and nothing else.
package plan
