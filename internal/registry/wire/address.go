package wire

import (
	"net/netip"
	"slices"
)

// reserved are the addresses where clouds give machines their credentials, beside link-local ones.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("fd00:c1::/32"), netip.MustParsePrefix("fd20:ce::/32"),
}

// private is what is private beside what net/netip knows: RFC 6598, which providers and some
// network plugins use so, and IPv6's old site-local addresses.
var private = []netip.Prefix{netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fec0::/10")}

func isReserved(a netip.Addr) bool {
	return slices.ContainsFunc(meanings(a), func(a netip.Addr) bool {
		return a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() || isIn(reserved, a)
	})
}

func isPrivate(a netip.Addr) bool {
	return slices.ContainsFunc(meanings(a), func(a netip.Addr) bool {
		return a.IsPrivate() || a.IsLoopback() || isIn(private, a)
	})
}

func isIn(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// embedding is where addresses of a prefix have one of IPv4.
type embedding struct {
	prefix netip.Prefix
	// at are the places of its four bytes.
	at [4]int
	// invert is what each of them is combined with.
	invert byte
}

// embeddings are the ways to reach IPv4 through IPv6. What a gateway of the network makes of such
// an address is the one inside.
var embeddings = []embedding{
	{netip.MustParsePrefix("64:ff9b::/96"), [4]int{12, 13, 14, 15}, 0}, // NAT64 (RFC 6052)
	// Of a network's own NAT64 (RFC 8215) the length of the prefix is not known.
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{12, 13, 14, 15}, 0},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{9, 10, 11, 12}, 0},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{7, 9, 10, 11}, 0},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{6, 7, 9, 10}, 0},
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}, 0},           // 6to4 (RFC 3056)
	{netip.MustParsePrefix("2001::/32"), [4]int{12, 13, 14, 15}, 0xff},    // Teredo (RFC 4380)
	{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}, 0},           // IPv4-compatible (RFC 4291)
	{netip.MustParsePrefix("::ffff:0:0:0/96"), [4]int{12, 13, 14, 15}, 0}, // translated (RFC 2765)
}

// meanings are an address, and those of IPv4 that it may stand for.
func meanings(a netip.Addr) []netip.Addr {
	a = a.WithZone("").Unmap()
	all := []netip.Addr{a}
	if a.Is4() || a.IsLoopback() || a.IsUnspecified() {
		return all
	}
	bytes := a.As16()
	for _, e := range embeddings {
		if !e.prefix.Contains(a) {
			continue
		}
		var inside [4]byte
		for i, at := range e.at {
			inside[i] = bytes[at] ^ e.invert
		}
		if inside[0] != 0 { // else it is another length of the prefix, or no one's address
			all = append(all, netip.AddrFrom4(inside))
		}
	}
	return all
}
