package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// Versions of what is made from the inputs, beside Inputs.ConfigVersion. A key says that two images
// hold the same, so one of these grows when Layerwright makes another image from the same inputs;
// every cluster then builds, or appends, once more.
const (
	contentVersion = "content.v1"
	buildVersion   = "build.v1"
)

// keyLength is the length of a key in hexadecimal characters: 128 bits, so that a pool's name and a
// key fit into a tag, a label and an object name.
const keyLength = 32

// Keys are the two levels of an image's identity (docs/architecture.md): 32 lowercase
// hexadecimal characters each.
type Keys struct {
	// Content is over what is built: base, extensions, kernel, Containerfiles and what their RUN
	// lines see.
	Content string `json:"content"`
	// Build is over Content and the configuration: images with the same build key are
	// interchangeable.
	Build string `json:"build"`
}

// Keys computes the keys of an image with these inputs. The order of lists does not matter.
func (in *Inputs) Keys() Keys {
	c := in.canonical()
	content := newKey(contentVersion)
	content.field(c.Base)
	content.field(c.Extensions)
	content.list(c.ExtensionNames)
	content.field(c.KernelType)
	content.count(len(c.Containerfiles))
	for _, file := range c.Containerfiles {
		content.field(string(file.Arch))
		content.field(file.Text)
	}
	content.items(c.BuildInputs)
	if len(c.Architectures) > 0 { // most images are for one
		content.count(len(c.Architectures))
		for _, a := range c.Architectures {
			content.field(string(a))
		}
	}

	build := newKey(buildVersion)
	build.field(content.sum())
	build.count(c.ConfigVersion)
	build.items(c.Config)
	return Keys{Content: content.sum(), Build: build.sum()}
}

// key hashes a sequence of fields. Every field is preceded by its length, so that no two sequences
// hash the same bytes.
type key struct {
	hash   hash.Hash
	prefix [8]byte
	buffer []byte
}

func newKey(version string) *key {
	k := &key{hash: sha256.New()}
	k.field(version)
	return k
}

func (k *key) count(n int) {
	binary.BigEndian.PutUint64(k.prefix[:], uint64(n)) //nolint:gosec // neither lengths nor versions are negative
	k.hash.Write(k.prefix[:])
}

func (k *key) field(value string) {
	k.count(len(value))
	k.buffer = append(k.buffer[:0], value...)
	k.hash.Write(k.buffer)
}

func (k *key) list(values []string) {
	k.count(len(values))
	for _, value := range values {
		k.field(value)
	}
}

func (k *key) items(items []Item) {
	k.count(len(items))
	for _, item := range items {
		k.field(item.Name)
		k.field(item.Hash)
	}
}

func (k *key) sum() string { return hex.EncodeToString(k.hash.Sum(nil))[:keyLength] }
