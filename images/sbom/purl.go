package sbom

import (
	"fmt"
	"slices"
	"strings"

	"github.com/layerwright/layerwright/osimage/packages"
)

// packageURL names a package as the package URL specification has it. The release is what
// os-release(5) says of the system that it is installed in.
func packageURL(p packages.Package, release map[string]string) string {
	distribution := strings.ToLower(release["ID"])
	var qualifiers []string
	qualify := func(name, value string) {
		if value != "" {
			qualifiers = append(qualifiers, name+"="+escape(value))
		}
	}
	qualify("arch", p.Arch)
	version, upstream := p.Version, p.Source
	switch p.Type {
	case packages.RPM: // there the epoch is no part of the version
		if epoch, rest, has := strings.Cut(p.Version, ":"); has {
			version = rest
			qualify("epoch", epoch)
		}
	case packages.Deb:
		if p.Source == p.Name && p.SourceVersion == "" {
			upstream = ""
		}
		if p.SourceVersion != "" {
			upstream += "@" + p.SourceVersion
		}
	}
	if distribution != "" {
		distro := distribution
		if id := release["VERSION_ID"]; id != "" {
			distro += "-" + id
		}
		qualify("distro", distro)
	}
	qualify("upstream", upstream)
	slices.Sort(qualifiers)
	var url strings.Builder
	url.WriteString("pkg:" + p.Type + "/")
	if distribution != "" {
		url.WriteString(escape(distribution) + "/")
	}
	url.WriteString(escape(p.Name) + "@" + escape(version))
	if len(qualifiers) > 0 {
		url.WriteString("?" + strings.Join(qualifiers, "&"))
	}
	return url.String()
}

// imageURL names an image by its digest, empty where it is in no repository.
func imageURL(repository, digest, arch string) string {
	if repository == "" {
		return ""
	}
	name := repository[strings.LastIndex(repository, "/")+1:]
	url := "pkg:oci/" + escape(strings.ToLower(name)) + "@" + escape(digest) + "?"
	if arch != "" {
		url += "arch=" + escape(arch) + "&"
	}
	return url + "repository_url=" + escape(repository)
}

// escape is percent-encoding, of each byte that is neither a letter nor a digit nor one of the
// marks that package URLs leave as they are.
func escape(text string) string {
	var out strings.Builder
	for _, b := range []byte(text) {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', strings.IndexByte("-._~:", b) >= 0:
			out.WriteByte(b)
		default:
			_, _ = fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	return out.String()
}
