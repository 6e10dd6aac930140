package osindex

// lay makes a layer part of the index.
func (x *Index) lay(l *layer) {
	x.root = over(x.root, l.root)
	x.layers++
	x.count()
}

// count finds out how much there is.
func (x *Index) count() {
	x.paths, x.bytes, x.kept = 0, 0, 0
	_ = x.root.each(func(n *node) error {
		x.paths++
		x.bytes += n.cost()
		if n.more != nil {
			x.kept += len(n.more.content)
		}
		return nil
	})
}

// over is what shows of a path with an upper node over a lower one, nil if nothing does. Either may
// be nil.
func over(lower, upper *node) *node {
	switch {
	case upper == nil:
		return lower
	case upper.attrs == nil: // a whiteout
		return nil
	case upper.kind() != Directory:
		upper.flags = 0
		return upper
	}
	if upper.flags&hides != 0 || (lower != nil && lower.kind() != Directory) {
		lower = nil
	}
	if lower != nil && upper.flags&implied != 0 {
		upper.attrs, upper.layer = lower.attrs, lower.layer
	}
	isOpaque := upper.flags&opaque != 0
	upper.flags = 0
	var below []*node
	if lower != nil && !isOpaque {
		below = lower.children()
	}
	if below = merge(below, upper.children()); len(below) > 0 {
		upper.extra().below = below
	} else {
		upper.more = nil
	}
	return upper
}

// merge lays the children of one directory over those of another.
func merge(lower, upper []*node) []*node {
	if len(upper) == 0 {
		return lower
	}
	all := make([]*node, 0, len(lower)+len(upper))
	for len(lower) > 0 || len(upper) > 0 {
		var a, b *node
		switch {
		case len(upper) == 0 || len(lower) > 0 && lower[0].name < upper[0].name:
			a, lower = lower[0], lower[1:]
		case len(lower) == 0 || lower[0].name > upper[0].name:
			b, upper = upper[0], upper[1:]
		default:
			a, b, lower, upper = lower[0], upper[0], lower[1:], upper[1:]
		}
		if n := over(a, b); n != nil {
			all = append(all, n)
		}
	}
	return all
}
