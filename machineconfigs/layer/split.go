package layer

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/osimage/osindex"
)

// splitter is the state of a Split.
type splitter struct {
	cfg      *machineconfigs.Config
	base     *osindex.Index
	tree     *tree
	accounts *accounts
	plan     *Plan
	record   record
	// presets is where the preset file goes.
	presets string
	remotes map[string]Remote
	wanted  map[string]bool
	// contentFollows reports whether the image below gets content before the layer is laid over it.
	contentFollows bool
	// late is what then has to wait for the content.
	late late
	// taken is which item of the configuration has a real path, and written which has a path as it
	// is written.
	taken, written map[string]*item
	errs           []error
}

// Split takes a configuration apart, for the image with the given index. It decodes every content
// once and keeps it for Build.
//
// The error lists all that is wrong, see Errors; each names the item, its place in the
// MachineConfig and what to do.
func Split(cfg *machineconfigs.Config, base *osindex.Index) (*Plan, error) {
	return newSplitter(cfg, base).split()
}

// Provisional is Split before content is built: base is what it will be built on. Accounts and
// units that base lacks are expected of the content instead of being errors. Items, and so keys,
// are made of what the configuration says about them; the layer lacks it. Once the content is
// there, Split of its image, or Complete where the layer lies below the content, says the rest.
func Provisional(cfg *machineconfigs.Config, base *osindex.Index) (*Plan, error) {
	s := newSplitter(cfg, base)
	s.contentFollows = true
	return s.split()
}

func newSplitter(cfg *machineconfigs.Config, base *osindex.Index) *splitter {
	return &splitter{
		cfg: cfg, base: base, tree: newTree(base), plan: &Plan{},
		remotes: map[string]Remote{}, wanted: map[string]bool{}, taken: map[string]*item{}, written: map[string]*item{},
	}
}

func (s *splitter) split() (*Plan, error) {
	steps := []func(){
		s.reserve, s.directories, s.files, s.links, s.units, s.parents, s.owners, s.hardLinks, s.packages, s.enablement,
	}
	for _, step := range steps {
		step()
	}
	s.plan.NodeState.Add(s.cfg)
	if err := s.wrong(); err != nil {
		return nil, err
	}
	return s.finish(), nil
}

// wrong is everything that is wrong, once all items have their places; nil where nothing is.
func (s *splitter) wrong() error {
	s.errs = append(s.errs, s.tree.clashes...)
	if len(s.errs) == 0 {
		s.failOn(s.tree.check())
	}
	return errors.Join(s.errs...)
}

// finish puts everything into the order that it is shown in.
func (s *splitter) finish() *Plan {
	p := s.plan
	slices.SortFunc(p.Items, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	for _, r := range s.remotes {
		p.Remote = append(p.Remote, r)
	}
	slices.SortFunc(p.Remote, func(a, b Remote) int { return cmp.Or(strings.Compare(a.URL, b.URL), strings.Compare(a.Key, b.Key)) })
	for file := range s.wanted {
		p.Wanted = append(p.Wanted, file)
	}
	slices.Sort(p.Wanted)
	slices.Sort(p.Notices)
	p.Notices = slices.Compact(p.Notices)
	slices.Sort(p.Expected)
	p.Expected = slices.Compact(p.Expected)
	s.record.sort()
	s.record.digest = itemsDigest(p.Items)
	p.build = s.builder()
	return p
}

// builder is what Build needs of the splitter.
func (s *splitter) builder() *builder {
	b := &builder{tree: s.tree, record: s.record, late: s.late, below: newBelow(s.base, s.tree.nodes, s.record.at)}
	s.tree.base = nil // it takes much memory, and a plan lives longer
	return b
}

// itemsDigest is over what is in the image because of the configuration, and nothing else.
func itemsDigest(items []Item) string {
	fields := make([]string, 0, 2*len(items))
	for _, i := range items {
		fields = append(fields, i.Name, i.Hash)
	}
	return digest(fields...)
}

func (s *splitter) fail(i *item, err error) { s.errs = append(s.errs, i.wrong(err)) }

// newItem names an item of the configuration; at is its place below spec.config.
func (s *splitter) newItem(kind, name, at string) *item {
	return &item{words: kind + " " + name, at: "spec.config." + at, machineConfig: s.cfg.Name}
}

// addItem lists image content. Name and fields are about what is in the image, not about how it is
// written.
func (s *splitter) addItem(kind, name string, fields ...string) {
	words := kind + " " + name
	s.plan.Items = append(s.plan.Items, Item{Name: words, Hash: digest(append([]string{words}, fields...)...)})
}

func (s *splitter) failOn(err error) {
	if err != nil {
		s.errs = append(s.errs, err)
	}
}

// reserve finds the places of the files that every image gets from Layerwright itself.
func (s *splitter) reserve() {
	for _, own := range []struct {
		at, words string
		real      *string
	}{
		{RecordPath, "the record of the configuration, which Layerwright writes", &s.record.at},
		{PresetPath, "the presets, which Layerwright writes", &s.presets},
	} {
		p, err := s.find(own.at, false)
		switch {
		case err != nil:
		case p.reason != "":
			err = errors.New(p.reason)
		case p.entry.Kind == osindex.Directory || p.entry.Kind == osindex.Special:
			err = errors.New("the image below has a directory or device there")
		default:
			s.taken[p.real] = &item{words: own.words, machineConfig: s.cfg.Name}
			*own.real = p.real
			continue
		}
		s.errs = append(s.errs, &Error{MachineConfig: s.cfg.Name, Err: fmt.Errorf(
			"the image below has no place for %s, %s: %w; change that in the Containerfile", own.words, own.at, err)})
	}
}

// find resolves a path against the image below, as far as the configuration leaves it there.
func (s *splitter) find(written string, follow bool) (place, error) {
	p, err := find(s.base, written, follow)
	if err == nil && s.tree.hidden(path.Dir(p.real)) {
		p.entry = osindex.Entry{}
	}
	return p, err
}

// claim notes that an item goes to a place, which no other item may have.
func (s *splitter) claim(i *item, p place) bool {
	if other, ok := s.taken[p.real]; ok {
		s.fail(i, fmt.Errorf("it leads to %s, and so does %s: remove one of them", p.real, other.words))
		return false
	}
	s.taken[p.real], s.written[p.written] = i, i
	return true
}

// settle brings an item that was found a place into the layer, and gives its node there. It gives
// none where the item is node state, for the reason that the place has, and no reason either where
// something is wrong with the item.
func (s *splitter) settle(i *item, p place, err error, nodeOnly []string, layered func(place) (*node, error)) (place, *node) {
	if err != nil {
		s.fail(i, err)
		return place{}, nil
	}
	p.reason = s.nodeOnly(nodeOnly, p.written, p.reason)
	if !s.claim(i, p) {
		return place{}, nil
	}
	if p.reason != "" {
		return p, nil
	}
	n, err := layered(p)
	if err != nil {
		s.fail(i, err)
		return place{}, nil
	}
	n.from = i
	s.tree.put(n)
	return p, n
}

// parents finds items that are below others which are no directories.
func (s *splitter) parents() {
	for _, paths := range []map[string]*item{s.taken, s.written} {
		for _, at := range sortedKeys(paths) {
			for dir := path.Dir(at); dir != "/"; dir = path.Dir(dir) {
				if above, ok := paths[dir]; ok && !above.directory {
					s.fail(paths[at], fmt.Errorf("it is below %s, which is not a directory: remove one of them", above.words))
					break
				}
			}
		}
	}
}

// want notes that a file of the image below is needed.
func (s *splitter) want(at string, entry osindex.Entry) {
	if _, kept := s.base.Content(at); !kept && entry.Size > 0 {
		s.wanted[at] = true
	}
}

// owners sets who owns what, when all files are known: the configuration may bring /etc/passwd
// itself.
func (s *splitter) owners() {
	s.accounts = readAccounts(s.tree)
	for _, f := range s.record.files {
		s.own(f.node, f.file.Node)
		s.addFileItem(f)
	}
	for _, d := range s.record.directories {
		s.own(d.node, d.directory.Node)
		n := d.node
		s.addItem("directory", n.path, fmt.Sprintf("%o %s opaque=%t", n.mode, n.owner(), n.opaque))
	}
	for _, l := range s.record.links {
		if l.node.kind == SymbolicLink {
			s.own(l.node, l.link.Node)
			s.addItem("link", l.node.path, l.node.owner(), l.node.target)
		}
	}
}

// packages lists what other layers of the image have because of the configuration.
func (s *splitter) packages() {
	s.record.extensions, s.record.kernelType = slices.Sorted(slices.Values(s.cfg.Extensions)), s.cfg.KernelType
	s.record.extensions = slices.Compact(s.record.extensions)
	for _, name := range s.record.extensions {
		s.addItem("extension", name)
	}
	if s.record.kernelType == "" {
		s.record.kernelType = mcfgv1.KernelTypeDefault
	}
	if s.record.kernelType != mcfgv1.KernelTypeDefault {
		s.addItem("kernel type", s.record.kernelType)
	}
}
