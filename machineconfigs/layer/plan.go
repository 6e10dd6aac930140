package layer

import (
	"path"

	"github.com/layerwright/layerwright/machineconfigs/layer/nodestate"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// Version is part of what decides the bytes of a layer: it grows when the same Items over the same
// image give other bytes. Keys over Items have to include it.
const Version = 1

// Plan is a configuration, taken apart.
type Plan struct {
	// Items are what goes into the image, sorted by name. Together with Version and the digest of
	// the image below they decide every byte of the layer.
	Items []Item
	// NodeState is everything else: what the node agent applies.
	NodeState nodestate.State
	// Remote are the contents to be fetched before Build, sorted by key, each once.
	Remote []Remote
	// Wanted are files of the image below whose content Build needs and that the index doesn't
	// keep, sorted, as the index spells them.
	Wanted []string
	// Notices are sentences for people about what is allowed and probably not what was meant, such
	// as enabling a unit that has no [Install] section.
	Notices []string
	// Expected are things that the image below does not have and that the content has to bring, in
	// words; only in a plan of Provisional. The layer lacks what is about them.
	Expected []string

	build *builder
}

// builder is what a Plan keeps for Build.
type builder struct {
	tree   *tree
	record record
	late   late
	// below is what Build reads of the image below.
	below below
}

// below is a part of an index, which is not kept as a whole.
type below struct {
	entries  map[string]osindex.Entry
	contents map[string][]byte
}

// newBelow takes from an index what is on the way to paths, and what nodes append to.
func newBelow(base *osindex.Index, nodes map[string]*node, paths ...string) below {
	b := below{entries: map[string]osindex.Entry{}, contents: map[string][]byte{}}
	add := func(at string) (isNew bool) {
		if _, has := b.entries[at]; has {
			return false
		}
		b.entries[at], _ = base.Lookup(at)
		return true
	}
	for at, n := range nodes {
		paths = append(paths, at)
		if n.content.base != "" {
			add(n.content.base)
			if content, ok := base.Content(n.content.base); ok {
				b.contents[n.content.base] = content
			}
		}
	}
	for _, at := range paths {
		for dir := path.Dir(at); at != "" && dir != "/" && add(dir); {
			dir = path.Dir(dir)
		}
	}
	return b
}

// Item is one thing that goes into the image.
type Item struct {
	// Name says what it is, in words: "file /etc/chrony.conf", "directory /etc/foo", "link /etc/x",
	// "unit chronyd.service", "drop-in 10-x.conf of unit y.service". Paths are the real ones of the
	// image below.
	Name string `json:"name"`
	// Hash is a sha256 in hexadecimal over what the item means: decoded content, mode, owner. How
	// it is written, for example the encoding of its content, makes no difference. Content to be
	// fetched counts with its verification hash.
	Hash string `json:"hash"`
}

// Inputs are the contents that a plan asks for.
type Inputs struct {
	// Remote are the fetched bytes, as they came, by Remote.Key.
	Remote map[string][]byte
	// Base are the files of the image below that Plan.Wanted lists.
	Base map[string][]byte
}
