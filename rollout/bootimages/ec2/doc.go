// Package ec2 asks Amazon EC2 whose an AMI is.
//
// Rule: it asks this one question, signed with the credentials that the Machine API has already,
// and never changes anything. Where there are no credentials it can use, it says that it does not
// know.
package ec2
