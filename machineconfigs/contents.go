package machineconfigs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/url"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs/dataurl"
)

// MaxContentSize is how many bytes the decompressed content of one resource may have. What is
// larger does not belong into the API, and a few kilobytes of gzip can stand for gigabytes.
const MaxContentSize = 64 << 20

// MaxContents is how many bytes the contents of a configuration may have together: of one
// MachineConfig, of those that are joined, and of the rendered one.
const MaxContents = 64 << 20

var errTooMuch = fmt.Errorf("the contents have more than %d MiB together: bring large files with the Containerfile", MaxContents>>20)

// Contents is what a resource stands for, checked. What is compressed stays so, as a few kilobytes
// can stand for many megabytes.
type Contents struct {
	data   []byte
	packed bool
	// Size is that of the decompressed content, in bytes.
	Size int64
}

// OpenContents reads what a resource stands for: a data URL (RFC 2397), plain or in base64,
// decompressed if compression is gzip. A verification hash, of the decompressed bytes as Ignition's
// specification has it, is checked. A resource without a source, or with an empty one, is empty.
// Remote is true for http and https: the bytes have to be fetched, and checked with CheckFetched.
// Errors: another scheme, a broken data URL, data that does not decompress, more than
// MaxContentSize, and another hash.
func OpenContents(r types.Resource) (c Contents, remote bool, err error) {
	var d decoder
	remote, err = d.decode(r)
	if err != nil || remote {
		return Contents{}, remote, err
	}
	return d.contents(d.scratch), false, nil
}

// PlainContents is content that is there as it is.
func PlainContents(data []byte) *Contents { return &Contents{data: data, Size: int64(len(data))} }

// CheckFetched takes what was fetched for a resource, and checks it, as OpenContents does with data
// URLs.
func CheckFetched(r types.Resource, fetched []byte) (Contents, error) {
	var d decoder
	if err := d.verify(r, fetched); err != nil {
		return Contents{}, err
	}
	return d.contents(fetched), nil
}

// WriteTo writes the decompressed content.
func (c Contents) WriteTo(w io.Writer) (int64, error) {
	if !c.packed {
		n, err := w.Write(c.data)
		return int64(n), err
	}
	reader, err := gzip.NewReader(bytes.NewReader(c.data))
	if err != nil {
		return 0, gzipError(err)
	}
	n, err := io.Copy(w, reader) //nolint:gosec // its size was measured
	if err != nil {
		return n, gzipError(err)
	}
	return n, nil
}

// DecodeContents gives all bytes that a resource stands for, as OpenContents reads them; nil where
// they are remote.
func DecodeContents(r types.Resource) (data []byte, remote bool, err error) {
	c, remote, err := OpenContents(r)
	if err != nil || remote {
		return nil, remote, err
	}
	var all bytes.Buffer
	all.Grow(int(c.Size))
	if _, err := c.WriteTo(&all); err != nil {
		return nil, false, err
	}
	return all.Bytes(), false, nil
}

// decoder checks contents, one after the other.
type decoder struct {
	// scratch has the data of the last data URL, and is used again for the next one.
	scratch []byte
	packed  bool
	size    int64
}

// contents is what was checked last.
func (d *decoder) contents(data []byte) Contents {
	return Contents{data: data, packed: d.packed, Size: d.size}
}

func (d *decoder) decode(r types.Resource) (remote bool, err error) {
	source := ""
	if r.Source != nil {
		source = *r.Source
	}
	d.size = 0
	scheme, _, hasScheme := strings.Cut(source, ":")
	switch {
	case source == "": // an empty file, for Ignition too, whatever compression says
		r.Compression, d.scratch = nil, d.scratch[:0]
		return false, d.verify(r, nil)
	case scheme == "data":
		if d.scratch, err = dataurl.Append(d.scratch[:0], source); err != nil {
			return false, err
		}
		return false, d.verify(r, d.scratch)
	case strings.EqualFold(scheme, "http"), strings.EqualFold(scheme, "https"):
		return true, checkHost(source)
	}
	if !hasScheme { // it may be the content itself, which may be a secret
		return false, errors.New("the source has no scheme; put the content in as a data URL, such as data:,text")
	}
	return false, schemeError(scheme)
}

// verify measures data, decompressed, and checks its hash.
func (d *decoder) verify(r types.Resource, data []byte) error {
	sum, want, err := wantedSum(r.Verification)
	if err != nil {
		return err
	}
	compression := ""
	if r.Compression != nil {
		compression = *r.Compression
	}
	out := io.Discard
	if sum != nil {
		out = sum
	}
	switch compression {
	case "":
		d.packed, d.size = false, int64(len(data))
		if d.size > MaxContentSize {
			return errTooLarge
		}
		_, _ = out.Write(data) // never fails
	case "gzip":
		d.packed = true
		if d.size, err = decompress(out, data); err != nil {
			return err
		}
	default:
		return fmt.Errorf("compression %q is not known; use gzip, or leave it out", compression)
	}
	if sum == nil {
		return nil
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(got, want) {
		return fmt.Errorf("the content has the hash %s, but verification.hash is %s; correct the one that is wrong", got, want)
	}
	return nil
}

var errTooLarge = fmt.Errorf("the content is larger than %d MiB", MaxContentSize>>20)

// decompress writes decompressed data, and says how much it is.
func decompress(out io.Writer, data []byte) (int64, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return 0, gzipError(err)
	}
	n, err := io.Copy(out, io.LimitReader(reader, MaxContentSize+1))
	if err != nil {
		return 0, gzipError(err)
	}
	if n > MaxContentSize {
		return 0, errTooLarge
	}
	return n, nil
}

func gzipError(err error) error {
	return fmt.Errorf("decompressing: %w; set compression to \"\" if the content is not compressed", err)
}

// wantedSum gives the hash function and the sum of a verification; nil without one.
func wantedSum(v types.Verification) (hash.Hash, string, error) {
	if v.Hash == nil {
		return nil, "", nil
	}
	function, sum, found := strings.Cut(*v.Hash, "-")
	var h hash.Hash
	switch {
	case found && function == "sha256":
		h = sha256.New()
	case found && function == "sha512":
		h = sha512.New()
	default:
		return nil, "", fmt.Errorf("verification.hash %q is not sha256-<sum> or sha512-<sum>", *v.Hash)
	}
	if decoded, err := hex.DecodeString(sum); err != nil || len(decoded) != h.Size() {
		return nil, "", fmt.Errorf("verification.hash %q is not %s- and %d hexadecimal digits", *v.Hash, function, 2*h.Size())
	}
	return h, sum, nil
}

// checkHost says nothing of the URL: there may be a password in it.
func checkHost(source string) error {
	address, err := url.Parse(source)
	if err != nil {
		return errors.New("the URL cannot be read")
	}
	if address.Hostname() == "" {
		return errors.New("the URL has no host")
	}
	return nil
}

func schemeError(scheme string) error {
	return fmt.Errorf("sources with the scheme %q are not fetched; use http or https with verification.hash, or put the content in as a data URL", scheme)
}
