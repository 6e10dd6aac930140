// Package leaks looks for secrets in places where none may be: as they are, in base64 at any
// offset, in hexadecimal, in JSON and in gzip. It tells which secret it found where, and never the
// secret.
package leaks
