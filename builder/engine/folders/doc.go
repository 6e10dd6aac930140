// Package folders knows where a step finds things and leaves them, and makes sure that the folders
// which the controller filled have what it put there. Push takes nothing from the store.
package folders
