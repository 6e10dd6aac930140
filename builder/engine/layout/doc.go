// Package layout is how an image passes from Export to Push: the files of an image layout. The
// writer refuses a store that RUN lines changed, and the reader trusts nothing but digests.
package layout
