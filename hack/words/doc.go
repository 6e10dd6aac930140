// Command words checks the words of comments, texts and names against the glossary, and the length
// of comment lines. With -wrap it wraps the comment lines that are too long.
//
// Rule: what it changes are line breaks within paragraphs of comments, and nothing else.
package main
