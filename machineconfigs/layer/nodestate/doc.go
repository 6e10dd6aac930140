// Package nodestate is what of a configuration no image can carry, and so the node agent applies.
//
// Rule: pure. Each part has the reason why it is not in the image, and only Summary may be shown:
// the rest holds secrets.
package nodestate
