// Package kms has key management services for tests: Vault's own transit engine in a program, and a
// stand-in for AWS's service. The programs that sign with their keys are the ones of the
// controller's image.
//
// The stand-ins answer the requests that signing takes in the form of the services' APIs, and want
// their credentials. Vault's tokens and policies are made by the program around the engine; that of
// AWS speaks TLS and does not verify what requests are signed with beyond the access key. Google's
// and Azure's services have none: their clients take no other address, or no other authority.
package kms
