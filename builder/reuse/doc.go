// Package reuse finds images and content that a registry has already, and judges whether they may
// be taken for what is wanted. Content is known again by what was stated of it when it was built.
//
// Rule: tags and labels are hints, since whoever may push can write them. What is taken is what was
// signed, or what is attested with the wanted key, where anything is signed here.
package reuse
