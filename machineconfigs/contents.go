package machineconfigs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
)

// MaxContentSize is how many bytes the decompressed content of one resource may have. What is
// larger does not belong into the API, and a few kilobytes of gzip can stand for gigabytes.
const MaxContentSize = 64 << 20

// maxDataURLHeader is where the comma of a data URL is looked for.
const maxDataURLHeader = 512

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
	scheme, _, _ := strings.Cut(source, ":")
	switch {
	case source == "": // an empty file, for Ignition too, whatever compression says
		r.Compression, d.scratch = nil, d.scratch[:0]
		return false, d.verify(r, nil)
	case scheme == "data":
		if d.scratch, err = appendDataURL(d.scratch[:0], source); err != nil {
			return false, err
		}
		return false, d.verify(r, d.scratch)
	case strings.EqualFold(scheme, "http"), strings.EqualFold(scheme, "https"):
		return true, checkHost(source)
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

// dataURL is a data URL in its parts.
type dataURL struct {
	base64 bool
	data   string
}

// splitDataURL takes a data URL apart that has nothing uncommon before its comma: no quoted and no
// escaped parameters. Of others it reports false, which says nothing about them.
func splitDataURL(source string) (dataURL, bool) {
	rest, ok := strings.CutPrefix(source, "data:")
	if !ok {
		return dataURL{}, false
	}
	header, _, ok := strings.Cut(rest[:min(len(rest), maxDataURLHeader)], ",")
	if !ok {
		return dataURL{}, false
	}
	parameters := strings.Split(header, ";")
	if !isMediaType(parameters[0]) {
		return dataURL{}, false
	}
	parts := dataURL{data: rest[len(header)+1:]}
	for i, parameter := range parameters[1:] {
		name, value, hasValue := strings.Cut(parameter, "=")
		switch {
		case !hasValue && name == "base64" && i == len(parameters)-2:
			parts.base64 = true
		case !hasValue || !isToken(name) || !isToken(value):
			return dataURL{}, false
		}
	}
	return parts, true
}

var mediaTypes = []string{"text", "image", "audio", "video", "application", "message", "multipart"}

func isMediaType(mediaType string) bool {
	if mediaType == "" {
		return true
	}
	kind, sub, found := strings.Cut(mediaType, "/")
	return found && slices.Contains(mediaTypes, kind) && isToken(sub)
}

// isToken is a conservative reading of RFC 2045's token.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		letterOrDigit := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letterOrDigit && strings.IndexByte("-._+!&$^#", c) < 0 {
			return false
		}
	}
	return s != ""
}

// appendDataURL appends the data of a data URL. It accepts what the library accepts that Ignition
// uses, many times faster.
func appendDataURL(dst []byte, source string) ([]byte, error) {
	parts, ok := splitDataURL(source)
	if !ok {
		decoded, err := dataurl.DecodeString(source)
		if err != nil {
			return dst, fmt.Errorf("reading the data URL: %w", err)
		}
		return append(dst, decoded.Data...), nil
	}
	if parts.base64 {
		return appendBase64(dst, parts.data)
	}
	return appendUnescaped(dst, parts.data)
}

func appendBase64(dst []byte, data string) ([]byte, error) {
	for _, lineBreak := range []byte("\r\n") { // which the decoder would skip
		if at := strings.IndexByte(data, lineBreak); at >= 0 {
			return dst, fmt.Errorf("reading the data URL: line break at character %d of the data; write base64 in one line", at+1)
		}
	}
	start := len(dst)
	dst = slices.Grow(dst, base64.StdEncoding.DecodedLen(len(data)))
	n, err := base64.StdEncoding.Decode(dst[start:cap(dst)], []byte(data))
	if err != nil {
		var corrupt base64.CorruptInputError
		if errors.As(err, &corrupt) {
			return dst, fmt.Errorf("reading the data URL: no base64 at character %d of the data", int64(corrupt)+1)
		}
		return dst, fmt.Errorf("reading the data URL: %w", err)
	}
	return dst[:start+n], nil
}

// appendUnescaped resolves %xx, and refuses what has to be written that way in a URL.
func appendUnescaped(dst []byte, data string) ([]byte, error) {
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case c == '%':
			if i+2 >= len(data) {
				return dst, fmt.Errorf("reading the data URL: incomplete %%xx at character %d of the data", i+1)
			}
			b, err := hex.DecodeString(data[i+1 : i+3])
			if err != nil {
				return dst, fmt.Errorf("reading the data URL: no hexadecimal digits after %% at character %d of the data; write %% as %%25", i+1)
			}
			dst = append(dst, b[0])
			i += 2
		case c <= ' ' || c > '~' || strings.IndexByte("<>#\"{}|\\^[]`", c) >= 0:
			return dst, fmt.Errorf("reading the data URL: character %q at %d of the data; write it as %%%02X, or use base64", rune(c), i+1, c)
		default:
			dst = append(dst, c)
		}
	}
	return dst, nil
}
