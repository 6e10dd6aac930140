// Package kms has key management services for tests: the real HashiCorp Vault as a program, and a stand-in for AWS's. The programs that sign with their keys
// are the ones of the controller's image.
//
// The stand-in answers the three requests that signing takes in the form of AWS's API, over TLS, and wants requests that are signed with its access key; it
// does not verify their signatures. Google's and Azure's services have none: their clients take no other address, or no other authority.
package kms
