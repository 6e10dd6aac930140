package layer

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/layerwright/layerwright/osimage/osindex"
)

// place is where something of the configuration goes.
type place struct {
	// written is the path in the configuration, real where it leads in the image below, entry what
	// is there.
	written, real string
	entry         osindex.Entry
	// reason is why it is node state; empty for image content.
	reason string
}

// whiteoutPrefix begins the names of files that remove what is below them (OCI image specification,
// "Whiteouts").
const whiteoutPrefix = ".wh."

// checkPath tells what is wrong with a path, whatever the image below has.
func checkPath(written string) error {
	switch {
	case written == "":
		return errors.New("the path is empty: name the place in the file system")
	case !path.IsAbs(written) || path.Clean(written) != written:
		return fmt.Errorf("the path must be absolute, without \"..\", \".\" and double slashes: write %q", path.Join("/", written))
	case written == "/":
		return errors.New("the path is the root directory, which no configuration can replace: name something in it")
	case strings.ContainsRune(written, 0) || !utf8.ValidString(written):
		return errors.New("the path contains a zero byte or is not UTF-8: write it as text")
	case len(written) > osindex.MaxPathBytes:
		return fmt.Errorf("the path has %d bytes, and Linux allows %d: shorten it", len(written), osindex.MaxPathBytes)
	}
	for name := range strings.SplitSeq(written[1:], "/") {
		switch {
		case len(name) > osindex.MaxNameBytes:
			return fmt.Errorf("a name in the path has %d bytes, and Linux allows %d: shorten it", len(name), osindex.MaxNameBytes)
		case strings.HasPrefix(name, whiteoutPrefix):
			return fmt.Errorf("the name %q begins with %q, which removes files in layers of images: choose another name", name, whiteoutPrefix)
		}
	}
	return nil
}

// find resolves a path against the image below. With follow a link in its last part is followed
// too, wherever it leads.
func find(base *osindex.Index, written string, follow bool) (place, error) {
	if err := checkPath(written); err != nil {
		return place{}, err
	}
	resolve := base.Resolve
	if follow {
		resolve = base.Follow
	}
	r, err := resolve(written)
	if notDirectory := (*osindex.NotDirectoryError)(nil); errors.As(err, &notDirectory) {
		return place{}, fmt.Errorf("%q is not a directory in the image below: choose another path, or replace it in the Containerfile",
			notDirectory.Parent)
	}
	if err != nil {
		return place{}, fmt.Errorf("%w: choose a path that doesn't lead through it", err)
	}
	p := place{written: written, real: r.Path, entry: r.Entry}
	// What a link says may be anything, so the real path is checked again.
	if err := checkPath(p.real); err != nil {
		return place{}, fmt.Errorf("it leads to %q: %w", p.real, err)
	}
	p.reason, err = whyNotInImage(p)
	return p, err
}

// whyNotInImage is the reason why a path is node state, empty for image content, and an error for
// what no one can write.
func whyNotInImage(p place) (string, error) {
	top, _, _ := strings.Cut(p.real[1:], "/")
	leads := ""
	if p.real != p.written {
		leads = fmt.Sprintf("it leads to %s; ", p.real)
	}
	switch top {
	case "var":
		return leads + "an image's /var only seeds a new machine's, and later images don't change it", nil
	case "run", "tmp":
		return leads + "/" + top + " is empty after every boot, whatever the image has there", nil
	case "boot":
		return leads + "/boot is a file system of the machine, not of the image", nil
	case "sysroot":
		return leads + "/sysroot is the machine's disk, below all images", nil
	case "proc", "sys", "dev":
		return "", fmt.Errorf("%s/%s is filled by the kernel when the machine runs: use a sysctl.d, tmpfiles.d or udev rule instead", leads, top)
	}
	return "", nil
}
