// Package compose makes one image of another: it takes the configuration layer off, puts one on, and
// changes labels and annotations.
//
// Rule: it talks to no registry, and nothing in an image depends on time or chance. Fields that no
// one here knows stay as they are.
package compose
