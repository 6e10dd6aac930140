// Package files writes files that other programs read at any moment, some of
// which end or reload when one changes.
package files
