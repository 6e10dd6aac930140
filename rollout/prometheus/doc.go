// Package prometheus asks servers that speak the HTTP API of Prometheus for what health checks
// read.
//
// Rule: a query is asked while someone wants its answer, and at most once in Interval. No reconcile
// waits for it. What a server answers is bounded in time and size, no redirect is followed, and
// neither the address nor the token is ever in a log or an error: both may be secret. The client is
// by hand, because client_golang's reads bodies without a limit.
package prometheus
