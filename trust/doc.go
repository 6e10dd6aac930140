// Package trust reports whether an image is trusted: whose signature its repository takes, and what
// its provenance has to say. Below it, sign signs and verifies by cosign, enforcement makes nodes
// insist on signatures, and signaturepolicy is what they read then.
//
// Rule: the policy, and what provenance has to say, are read and judged by pure functions of texts
// and a time; the registry is asked by Rule.Verify alone, and the API server by ConfigMap. What an
// administrator writes is in docs/signing.md, why it is a ConfigMap in
// docs/adr/0024-trust-policy.md.
package trust
