package layer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs"
)

// content is what a file holds, as far as it is known: pieces, one after the other.
type content struct {
	// base is the file of the image below whose bytes come first; empty for none.
	base  string
	parts []part
}

// part is a piece of content: what is there, or what has to be fetched.
type part struct {
	contents *machineconfigs.Contents
	remote   *fetch
}

// Remote is content that has to be fetched.
type Remote struct {
	// Key is where Build looks for the content in Inputs.Remote. Equal keys mean equal content.
	Key string
	// URL is the address.
	URL string
	// Hash is the verification hash of the content after decompression, such as "sha256-" and 64
	// hexadecimal digits. Build checks it.
	Hash string
	// Compression is "gzip" or empty. Build decompresses.
	Compression string
	// Headers are to be sent with the request, in the order in which they are configured.
	Headers []Header
}

// Header is a header of an HTTP request.
type Header struct{ Name, Value string }

// fetch is content to be fetched, with what its check needs.
type fetch struct {
	Remote
	resource types.Resource
}

// identity says what the content is: "base", or sums of its pieces. Bytes of neighbouring pieces
// are summed as one.
func (c content) identity() []string {
	var all []string
	if c.base != "" {
		all = append(all, "base")
	}
	for i := 0; i < len(c.parts); {
		if r := c.parts[i].remote; r != nil {
			all = append(all, r.Hash)
			i++
			continue
		}
		sum := sha256.New()
		for ; i < len(c.parts) && c.parts[i].remote == nil; i++ {
			_, _ = c.parts[i].contents.WriteTo(sum) // it was read to its end once
		}
		all = append(all, "sha256-"+hex.EncodeToString(sum.Sum(nil)))
	}
	return all
}

// read gives the pieces, with the fetched ones from the inputs.
func (c content) read(remote map[string][]byte) (body, error) {
	var all body
	for _, p := range c.parts {
		if p.remote == nil {
			all = append(all, piece{contents: p.contents})
			continue
		}
		fetched, ok := remote[p.remote.Key]
		if !ok {
			return nil, fmt.Errorf("the content of %q was not fetched", p.remote.URL)
		}
		contents, err := machineconfigs.CheckFetched(p.remote.resource, fetched)
		if err != nil {
			return nil, fmt.Errorf("content of %q: %w", p.remote.URL, err)
		}
		all = append(all, piece{contents: &contents})
	}
	return all, nil
}

// errNotYet means that content is not known before it has been fetched.
var errNotYet = errors.New("its content has to be fetched first")

// local gives the content's own bytes, without the base's.
func (c content) local() ([]byte, error) {
	if slices.ContainsFunc(c.parts, func(p part) bool { return p.remote != nil }) {
		return nil, errNotYet
	}
	all, err := c.read(nil)
	if err != nil {
		return nil, err
	}
	return all.bytes()
}

// decode reads what a file in the configuration says its content is.
func decode(f types.File) ([]part, error) {
	var parts []part
	resources := f.Append
	if f.Contents.Source != nil {
		resources = append([]types.Resource{f.Contents}, resources...)
	}
	for _, r := range resources {
		contents, remote, err := machineconfigs.OpenContents(r)
		if err != nil {
			return nil, err
		}
		p := part{contents: &contents}
		if remote {
			if p.remote, err = newFetch(r); err != nil {
				return nil, err
			}
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// newFetch describes what has to be fetched. Without a hash the same configuration could make
// another image tomorrow.
func newFetch(r types.Resource) (*fetch, error) {
	if r.Verification.Hash == nil || *r.Verification.Hash == "" {
		return nil, errors.New("content that is fetched into an image needs a hash: set verification.hash, " +
			"or give the file to the node by the annotation nodeOnly")
	}
	f := &fetch{Remote: Remote{URL: *r.Source, Hash: strings.ToLower(*r.Verification.Hash)}, resource: r}
	if r.Compression != nil {
		f.Compression = *r.Compression
	}
	key := []string{f.URL, f.Hash, f.Compression}
	for _, h := range r.HTTPHeaders {
		header := Header{Name: h.Name}
		if h.Value != nil {
			header.Value = *h.Value
		}
		f.Headers = append(f.Headers, header)
		key = append(key, header.Name, header.Value)
	}
	f.Key = digest(key...)
	return f, nil
}

// digest is a sha256 over fields, in hexadecimal. No two lists of fields have the same text.
func digest(fields ...string) string {
	text := []byte(nil)
	for _, field := range fields {
		text = fmt.Appendf(text, "%d:%s,", len(field), field)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
