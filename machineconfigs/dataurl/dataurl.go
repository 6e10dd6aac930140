package dataurl

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vincent-petithory/dataurl"
)

// MaxHeader is where the comma of a data URL is looked for.
const MaxHeader = 512

// URL is a data URL in its parts.
type URL struct {
	Base64 bool
	Data   string
}

// Split takes a data URL apart that has nothing uncommon before its comma: no quoted and no
// escaped parameters. Of others it reports false, which says nothing about them.
func Split(source string) (URL, bool) {
	rest, ok := strings.CutPrefix(source, "data:")
	if !ok {
		return URL{}, false
	}
	header, _, ok := strings.Cut(rest[:min(len(rest), MaxHeader)], ",")
	if !ok {
		return URL{}, false
	}
	parameters := strings.Split(header, ";")
	if !isMediaType(parameters[0]) {
		return URL{}, false
	}
	parts := URL{Data: rest[len(header)+1:]}
	for i, parameter := range parameters[1:] {
		name, value, hasValue := strings.Cut(parameter, "=")
		switch {
		case !hasValue && name == "base64" && i == len(parameters)-2:
			parts.Base64 = true
		case !hasValue || !isToken(name) || !isToken(value):
			return URL{}, false
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

// Append appends the data of a data URL. It accepts what the library accepts that Ignition
// uses, many times faster.
func Append(dst []byte, source string) ([]byte, error) {
	parts, ok := Split(source)
	if !ok {
		decoded, err := dataurl.DecodeString(source)
		if err != nil {
			return dst, fmt.Errorf("reading the data URL: %w", err)
		}
		return append(dst, decoded.Data...), nil
	}
	if parts.Base64 {
		return appendBase64(dst, parts.Data)
	}
	return appendUnescaped(dst, parts.Data)
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
