// Package inwork remembers in files what is being worked on, so that what was in work each time
// when the process was killed is found.
//
// Rule: a file is there while its work lasts and no longer. What an orderly end leaves is nothing;
// what is there at the start was in work when the process before was killed, for example because it
// took too much memory. Only what was in work alone is blamed: of several, the one that was at
// fault can't be known.
package inwork
