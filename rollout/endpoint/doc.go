// Package endpoint asks what administrators name in Secrets: webhooks, and Alertmanagers.
//
// Rule: a request and its answer are bounded, and no redirect is followed. Neither the address nor
// the token is ever in a log or an error: both may be secret.
package endpoint
