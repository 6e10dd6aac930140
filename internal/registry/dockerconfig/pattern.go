package dockerconfig

import (
	"cmp"
	"net"
	"path"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// pattern is where credentials are for, the way the kubelet reads it: a host, whose labels may have
// globs, with the port if there is one, and the path that repositories begin with, with a leading
// slash if it is not empty.
type pattern struct{ host, path string }

// hubHosts are the names of Docker Hub. go-containerregistry says name.DefaultRegistry for all of
// them.
var hubHosts = map[string]bool{"docker.io": true, "registry-1.docker.io": true, "registry.hub.docker.com": true, name.DefaultRegistry: true}

// parsePattern reads the name of a server: "quay.io", "quay.io/team",
// "https://index.docker.io/v1/", "*.example.com:5000". All its errors are problems.
func parsePattern(server string) (pattern, error) {
	refuse := func(what string) (pattern, error) {
		return pattern{}, &problem{server: server, what: what, fix: "name it like quay.io or registry.example.com:5000/team"}
	}
	place := server
	if scheme, rest, found := strings.Cut(server, "://"); found {
		if scheme != "https" && scheme != "http" {
			server = "" // what came before may be anything
			return refuse("a server's name begins with another scheme than https:// or http://")
		}
		place = rest
	}
	if i := strings.LastIndex(place, "@"); i >= 0 {
		server = place[i+1:] // before it there may be a password
		return refuse("the server's name has a login in it")
	}
	if strings.ContainsAny(place, "?# \t\r\n") {
		return refuse("the server's name has a query, a fragment or space in it")
	}
	p := pattern{host: place}
	if i := strings.IndexByte(place, '/'); i >= 0 {
		p.host, p.path = place[:i], place[i:]
	}
	p.host = canonicalHost(p.host)
	p.path = canonicalPath(p.path)
	if host, port := splitPort(p.host); host == "" {
		return refuse("the server has no host")
	} else if port != "" && !isPort(port) {
		server = "" // it may be name:password
		return refuse("a server's port is no number")
	}
	if _, err := path.Match(p.host, ""); err != nil && !isAddress(p.host) {
		return refuse("the server's name is no valid pattern")
	}
	return p, nil
}

func canonicalHost(host string) string {
	host = strings.ToLower(host)
	if hubHosts[host] {
		return name.DefaultRegistry
	}
	return host
}

// canonicalPath drops the version of the registry protocol, which clients have always written
// behind the host.
func canonicalPath(path string) string {
	if strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/v2/") {
		path = path[len("/v1"):]
	}
	return strings.TrimRight(path, "/")
}

// isGlob reports whether the host stands for more than one.
func (p pattern) isGlob() bool { return strings.ContainsAny(p.host, "*?[\\") && !isAddress(p.host) }

// isAddress reports whether the host is an IPv6 address, whose brackets are no glob's.
func isAddress(host string) bool {
	end := strings.IndexByte(host, ']')
	return end > 0 && host[0] == '[' && net.ParseIP(host[1:end]) != nil
}

// matchesHost compares label by label, and ports as they are: a glob stands for one label, or a
// part of it.
func (p pattern) matchesHost(host string) bool {
	if !p.isGlob() {
		return p.host == host
	}
	ours, ourPort := splitPort(p.host)
	theirs, theirPort := splitPort(host)
	labels, others := strings.Split(ours, "."), strings.Split(theirs, ".")
	if ourPort != theirPort || len(labels) != len(others) {
		return false
	}
	for i, label := range labels {
		if ok, err := path.Match(label, others[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func isPort(port string) bool {
	_, err := strconv.ParseUint(strings.TrimPrefix(port, ":"), 10, 16)
	return err == nil
}

// splitPort leaves the colon with the port.
func splitPort(host string) (string, string) {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		return host[:i], host[i:]
	}
	return host, ""
}

// holds reports whether the path of a repository, with a leading slash, is below the pattern's.
func (p pattern) holds(repository string) bool {
	return p.path == "" || repository == p.path || strings.HasPrefix(repository, p.path+"/")
}

// begins is the kubelet's looser rule: "/team" also begins "/team-two".
func (p pattern) begins(repository string) bool { return strings.HasPrefix(repository, p.path) }

// compare puts what is more specific first, like the kubelet: hosts before globs, long paths before
// short ones.
func (p pattern) compare(q pattern) int {
	if p.isGlob() != q.isGlob() {
		if q.isGlob() {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(q.host, p.host), cmp.Compare(q.path, p.path))
}
