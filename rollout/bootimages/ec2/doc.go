// Package ec2 asks Amazon EC2 whose an AMI is.
//
// Rule: it asks this one question, signed with the keys or the role that the Machine API has
// already, and never changes anything. Of files it sends none but the token that was made for AWS.
// Credentials that it can't use are a Terminal error, which says what to correct.
package ec2
