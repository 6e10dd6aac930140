// Package pull reads images from registries as bootc and rpm-ostree do: by the library that they
// use, with the host's own certificates, logins and signature policy.
//
// Rule: nothing of an image is read before the policy of the booted /etc has allowed it.
package pull
