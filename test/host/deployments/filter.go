package deployments

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// filter is what a host takes of a layer, and where it puts it: the rules of ostree-ext
// (tar/write.rs).
type filter struct {
	// keepsVar leaves /var where it is, for ostree to make the host's own of it. Older ones know
	// nothing of it: it is put where systemd-tmpfiles looks.
	keepsVar bool
	// keepsAll takes what is outside of /usr, /etc and /var too: of images that are no commit, and
	// where the base has its root overlaid.
	keepsAll bool
}

// factory is where the /var of an image is for hosts whose ostree can't.
const factory = "usr/share/factory/var"

// varSince is the version of ostree that makes the host's /var of an image's.
var varSince = [2]int{2024, 3}

var versionPattern = regexp.MustCompile(`Version: '(\d+)\.(\d+)`)

// keepsVar reports whether ostree makes the host's /var of an image's.
func (s *Sysroot) keepsVar(ctx context.Context) (bool, error) {
	text, err := s.Tool.run(ctx, nil, "--version")
	if err != nil {
		return false, err
	}
	return isSince(text, varSince)
}

func isSince(version string, since [2]int) (bool, error) {
	found := versionPattern.FindStringSubmatch(version)
	if found == nil {
		return false, fmt.Errorf("reading the version of ostree in %q", version)
	}
	year, err := strconv.Atoi(found[1])
	if err != nil {
		return false, err
	}
	number, err := strconv.Atoi(found[2])
	return year > since[0] || year == since[0] && number >= since[1], err
}

// overlaid finds that a base's prepare-root.conf has composefs on, or a transient root.
var overlaid = regexp.MustCompile(`(?ms)^\[composefs\][^\[]*\nenabled\s*=\s*(yes|true|1|maybe|signed|verity)\s*$|^\[root\][^\[]*\ntransient\s*=\s*(true|1)\s*$`)

func overlaysRoot(prepareRoot string) bool { return overlaid.MatchString(prepareRoot) }

// place is where a path of a layer goes. It is empty for what is left out.
func (f filter) place(name string) (string, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("Invalid path: %s", name) //nolint:staticcheck // the importer's own words
		}
	}
	clean := path.Clean("/" + name)[1:]
	top, below, isBelow := strings.Cut(clean, "/")
	switch top {
	case "", "usr":
	case "etc":
		return path.Join("usr/etc", below), nil
	case "var":
		if !f.keepsVar {
			return path.Join(factory, below), nil
		}
	case "run", "tmp", "proc", "sys", "dev":
		if isBelow {
			return "", nil
		}
	default:
		if !f.keepsAll {
			return "", nil
		}
	}
	return "./" + clean, nil
}

// copy writes what is taken of a layer.
func (f filter) copy(out io.Writer, in io.Reader) error {
	from, to := tar.NewReader(in), tar.NewWriter(out)
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return to.Close()
		}
		if err != nil {
			return err
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if header.Name, err = f.place(header.Name); err != nil {
			return err
		}
		if header.Name == "" {
			continue
		}
		if header.Typeflag == tar.TypeLink {
			header.Linkname = linkTarget(header.Linkname)
		}
		header.Format = tar.FormatPAX
		if err := to.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(to, from); err != nil { //nolint:gosec // as much as the layer has, which ostree writes to disk
			return err
		}
	}
}

// linkTarget follows files of /etc, and nothing else: hard links below /var are lost with hosts
// whose ostree can't keep it.
func linkTarget(name string) string {
	if below, is := strings.CutPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "."), "/"), "etc/"); is {
		return "usr/etc/" + below
	}
	return name
}

// copyAll takes a layer as it is.
func copyAll(out io.Writer, in io.Reader) error {
	_, err := io.Copy(out, in)
	return err
}
