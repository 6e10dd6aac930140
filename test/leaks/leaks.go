package leaks

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
)

// shortest is how long a secret or a part of one has to be to be looked for. Shorter ones are found
// by chance.
const shortest = 8

// Generic are secrets that no one has to know beforehand: whatever begins like a private key in
// PEM, or a token of a service account. They are put together here so that this program's own text
// is none.
func Generic() map[string][]byte {
	return map[string][]byte{
		"a private key in PEM": []byte(strings.Join([]string{" PRIVATE", "KEY-----"}, " ")),
		"a token":              []byte(strings.Join([]string{"eyJhbGci", "Oi"}, "")),
	}
}

// Hunt looks for some secrets. It may be used by several goroutines.
type Hunt struct {
	needles map[string]string // to the name of the secret

	mu     sync.Mutex
	found  map[string]bool
	looked map[string]int
}

// New makes a Hunt for secrets by their names. Of a text in PEM each line is looked for, and the
// bytes that it stands for.
func New(secrets map[string][]byte) (*Hunt, error) {
	h := &Hunt{needles: map[string]string{}, found: map[string]bool{}, looked: map[string]int{}}
	for name, secret := range secrets {
		if block, _ := pem.Decode(secret); block != nil {
			h.add(name, block.Bytes)
			// What is left of a text that was cut has whole lines.
			for line := range strings.Lines(string(secret)) {
				if line = strings.TrimSpace(line); len(line) >= 2*shortest && !strings.HasPrefix(line, "-----") {
					h.needles[line] = name
				}
			}
			continue
		}
		if len(secret) < shortest {
			return nil, fmt.Errorf("the secret %q is shorter than %d bytes and would be found by chance", name, shortest)
		}
		h.add(name, secret)
	}
	return h, nil
}

// add looks for a secret in all its forms.
func (h *Hunt) add(name string, secret []byte) {
	h.needles[string(secret)] = name
	h.needles[hex.EncodeToString(secret)] = name
	if quoted, err := json.Marshal(string(secret)); err == nil {
		h.needles[string(quoted[1:len(quoted)-1])] = name
	}
	// What stands before it moves it by 0, 1 or 2 bytes; characters that have bits of others are
	// left out.
	for offset := range 3 {
		shifted := append(make([]byte, offset, offset+len(secret)), secret...)
		begin, end := (offset*8+5)/6, len(shifted)*8/6
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			if text := encoding.EncodeToString(shifted)[begin:end]; len(text) >= shortest {
				h.needles[text] = name
			}
		}
	}
}

// Search looks into some content of a kind, such as "log". Where says what it is, for whoever has
// to find the leak. What is packed with gzip is unpacked.
func (h *Hunt) Search(kind, where string, content []byte) {
	h.look(kind, where, content)
	if !bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
		return
	}
	packed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return
	}
	unpacked, err := io.ReadAll(packed)
	if err != nil && len(unpacked) == 0 {
		return
	}
	h.look(kind, where+" (unpacked)", unpacked)
}

func (h *Hunt) look(kind, where string, content []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looked[kind]++
	for needle, name := range h.needles {
		if bytes.Contains(content, []byte(needle)) {
			h.found[fmt.Sprintf("%s: %s in %s", kind, name, where)] = true
		}
	}
}

// Found are the secrets that were found: kind, name and where, in order.
func (h *Hunt) Found() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.found))
}

// FoundIn are the kinds of content that something was found in, in order.
func (h *Hunt) FoundIn() []string {
	kinds := map[string]bool{}
	for _, found := range h.Found() {
		kind, _, _ := strings.Cut(found, ":")
		kinds[kind] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

// Looked is how many pieces of content of each kind were looked into.
func (h *Hunt) Looked() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.looked)
}
