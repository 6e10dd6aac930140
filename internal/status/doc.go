// Package status writes the status of an object once at the end of a reconcile, and says in
// conditions what that status is.
//
// Rule: a reconciler remembers the object as it was read (NewPatcher), does its work, computes the
// conditions in one deferred function (Set, Rules.Conclude, SetBuild: pure functions of conditions
// and a given time) and ends with Patcher.Finish, which writes what changed in the status, moves
// observedGeneration and turns the class of the error into the end of the reconcile. Nothing here
// touches spec. Labels, annotations and finalizers are changed by a step of the reconciler's own,
// with ChangeMetadata or Acknowledge.
//
// Ready, Reconciling and Stalled follow kstatus (sigs.k8s.io/cli-utils): Reconciling and Stalled
// are there only while they are True. They are written together, from one State, so that they can't
// contradict each other. Package statustest checks that.
package status
