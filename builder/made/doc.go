// Package made writes down which image a build has made, as its MachineOSImage, and has that
// attested and signed.
//
// Rule: what is written first is what is attested and signed then, whatever the tags stand for.
// Everything can be done again, and ends the same.
package made
