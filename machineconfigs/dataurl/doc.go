// Package dataurl reads and writes data URLs, which is how Ignition configs carry contents.
//
// Rule: it takes what Ignition takes, and copies no content that it need not copy.
package dataurl
