// Package parsed keeps what was made of the content of an object that is read from the API server
// each time.
//
// Rule: it asks no one, and knows nothing of what is made. It is for Secrets and ConfigMaps, which
// no cache has, and whose content takes its time to parse or to decrypt.
package parsed
