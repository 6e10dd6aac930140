// Package dockerconfig reads the registry secrets of a cluster: kubernetes.io/dockerconfigjson and
// the older kubernetes.io/dockercfg, in memory, into one form that answers as
// go-containerregistry's keychain and can be written as one canonical file.
//
// It asks no cluster: the programs of build pods read with it the secrets that are mounted there.
//
// Rule: it is strict, because a secret that is read half fails much later and far away: what it
// does not understand is an [Error] that names the secret, the key and the server, and says the
// fix. No text of this package holds a credential: not its errors, and not its values, whichever
// way they are printed, logged or marshalled. A credential leaves by two ways only, which say so:
// [Login.Authorization] and [Store.DockerConfigJSON].
package dockerconfig
