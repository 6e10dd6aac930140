package layer

// Version is part of what decides the bytes of a layer: it grows when the same Items over the same
// image give other bytes. Keys over Items have to include it.
const Version = 1

// Plan is a configuration, taken apart.
type Plan struct {
	// Items are what goes into the image, sorted by name. Together with Version and the digest of
	// the image below they decide every byte of the layer.
	Items []Item
	// NodeState is everything else: what the node agent applies.
	NodeState NodeState
	// Remote are the contents to be fetched before Build, sorted by key, each once.
	Remote []Remote
	// Wanted are files of the image below whose content Build needs and that the index doesn't
	// keep, sorted, as the index spells them.
	Wanted []string
	// Notices are sentences for people about what is allowed and probably not what was meant, such
	// as enabling a unit that has no [Install] section.
	Notices []string
	// Expected are things that the image below does not have and that its content has to bring, in
	// words; only in a plan of Provisional.
	Expected []string

	build *builder
}

// builder is what a Plan keeps for Build.
type builder struct {
	tree   *tree
	record record
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
