// Package faultproxy stands between a client and a registry, and lets chosen requests go wrong:
// answered with an error, never answered, cut at a byte in either direction, or held until a test
// has done something meanwhile.
//
// Rule: what no rule matches passes through as it is, credentials included.
package faultproxy
