// Package cosign runs the real cosign for tests, as `bin/cluster tools` builds it: with a home of
// the test's own, so that it neither needs nor changes anything of the machine. What users are told
// to type, tests take from docs/signing.md and docs/signing-services.md.
package cosign
