// Package explanation says of a build what it was made for, how, what that cost, and what came of
// it.
//
// Rule: pure. It reads plain objects and decides nothing: builder/plan compares the inputs, and the
// conditions say how a build has ended.
package explanation
