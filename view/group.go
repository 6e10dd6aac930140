package view

import (
	"cmp"
	"slices"
	"strings"
)

// alike is what items have in common that are shown as one.
type alike struct {
	kind, wanted, has, image, step, waitsFor string
	assessment                               Assessment
	next                                     Actor
}

// maxAlike is how many groups of one step are shown each: what differs in words alone is counted
// from there on.
const maxAlike = 4

// group joins siblings that are equal but for their names: the worst first, of these the few. A
// step that some of them alone are at is never lost among the others.
func group(items []Item) []Item {
	places := map[alike]int{}
	var out []Item
	for i := range items {
		out = join(out, &items[i], places, keyOf(&items[i]))
	}
	slices.SortStableFunc(out, worstFirst)
	return bound(out)
}

func worstFirst(a, b Item) int {
	return cmp.Or(cmp.Compare(b.Assessment, a.Assessment), cmp.Compare(len(a.Names), len(b.Names)), strings.Compare(a.Step, b.Step))
}

func keyOf(i *Item) alike {
	return alike{
		kind: i.Kind, wanted: i.Wanted, has: i.Has, image: i.Image, step: i.Step, waitsFor: strings.Join(i.WaitsFor, "\n"), assessment: i.Assessment, next: i.Next,
	}
}

// join adds an item to the group of a key.
func join(groups []Item, item *Item, places map[alike]int, key alike) []Item {
	at, isKnown := places[key]
	if !isKnown {
		places[key] = len(groups)
		return append(groups, *item)
	}
	g := &groups[at]
	g.Names = append(g.Names, item.Names...)
	if g.Since.IsZero() || !item.Since.IsZero() && item.Since.Before(g.Since) {
		g.Since = item.Since
	}
	return groups
}

// bound joins the groups of a step that has too many of them.
func bound(groups []Item) []Item {
	stepOf := func(g *Item) alike { return alike{kind: g.Kind, step: g.Step, assessment: g.Assessment, next: g.Next} }
	all, shown, places := map[alike]int{}, map[alike]int{}, map[alike]int{}
	for i := range groups {
		all[stepOf(&groups[i])]++
	}
	var out []Item
	for i := range groups {
		g := groups[i]
		key := stepOf(&g)
		if shown[key]++; all[key] <= maxAlike || shown[key] < maxAlike {
			out = append(out, g)
			continue
		}
		g.Wanted, g.Has, g.Image, g.WaitsFor = "", "", "", []string{"each differs from those above in its reason, or in what it has"}
		out = join(out, &g, places, key)
	}
	return out
}
