package machineconfigs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/stretchr/testify/require"
	"github.com/vincent-petithory/dataurl"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func ptr[T any](value T) *T { return &value }

func compressed(tb testing.TB, content []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(content)
	require.NoError(tb, err)
	require.NoError(tb, w.Close())
	return b.Bytes()
}

func base64URL(content []byte) string {
	return "data:;base64," + base64.StdEncoding.EncodeToString(content)
}

func sha256Of(content string) *string {
	sum := sha256.Sum256([]byte(content))
	return ptr("sha256-" + hex.EncodeToString(sum[:]))
}

func TestDecodeContents(t *testing.T) {
	t.Parallel()
	sum512 := sha512.Sum512([]byte("hello"))
	tests := map[string]struct {
		resource types.Resource
		want     string
		remote   bool
	}{
		"nothing":                         {types.Resource{}, "", false},
		"an empty source":                 {types.Resource{Source: ptr("")}, "", false},
		"an empty source, not compressed": {types.Resource{Source: ptr(""), Compression: ptr("gzip")}, "", false},
		"an empty data URL":               {types.Resource{Source: ptr("data:,")}, "", false},
		"plain text":                      {types.Resource{Source: ptr("data:,hello%20world%0A")}, "hello world\n", false},
		"plain text with a type":          {types.Resource{Source: ptr("data:text/plain;charset=utf-8,hello")}, "hello", false},
		"a plus sign is no space":         {types.Resource{Source: ptr("data:,a+b")}, "a+b", false},
		"a comma in the text":             {types.Resource{Source: ptr("data:,a,b")}, "a,b", false},
		"base64":                          {types.Resource{Source: ptr("data:;base64,aGVsbG8=")}, "hello", false},
		"base64 with a type":              {types.Resource{Source: ptr("data:text/plain;charset=utf-8;base64,aGVsbG8=")}, "hello", false},
		"a quoted parameter":              {types.Resource{Source: ptr(`data:text/plain;name="a,b";base64,aGVsbG8=`)}, "hello", false},
		"compressed":                      {types.Resource{Source: ptr(base64URL(compressed(t, []byte("hello")))), Compression: ptr("gzip")}, "hello", false},
		"compressed nothing":              {types.Resource{Source: ptr(base64URL(compressed(t, nil))), Compression: ptr("gzip")}, "", false},
		"compression said to be none":     {types.Resource{Source: ptr("data:,hello"), Compression: ptr("")}, "hello", false},
		"with the right hash":             {types.Resource{Source: ptr("data:,hello"), Verification: types.Verification{Hash: sha256Of("hello")}}, "hello", false},
		"with the right hash in capitals": {types.Resource{Source: ptr("data:,hello"), Verification: types.Verification{Hash: ptr("sha256-" + strings.ToUpper((*sha256Of("hello"))[7:]))}}, "hello", false},
		"with the right long hash":        {types.Resource{Source: ptr("data:,hello"), Verification: types.Verification{Hash: ptr("sha512-" + hex.EncodeToString(sum512[:]))}}, "hello", false},
		"compressed, with the hash of what was compressed": {types.Resource{
			Source: ptr(base64URL(compressed(t, []byte("hello")))), Compression: ptr("gzip"), Verification: types.Verification{Hash: sha256Of("hello")},
		}, "hello", false},
		"http":             {types.Resource{Source: ptr("http://x/y")}, "", true},
		"https":            {types.Resource{Source: ptr("https://x/y"), Verification: types.Verification{Hash: sha256Of("hello")}}, "", true},
		"HTTP in capitals": {types.Resource{Source: ptr("HTTP://x/y")}, "", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, remote, err := DecodeContents(test.resource)
			require.NoError(t, err)
			require.Equal(t, test.remote, remote)
			require.Equal(t, test.want, string(data))
			check := decoder{}
			_, err = check.decode(test.resource)
			require.NoError(t, err, "checking without keeping comes to the same")
		})
	}
}

func TestDecodeContentsRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		resource types.Resource
		want     string
	}{
		"no host":             {types.Resource{Source: ptr("http:/x")}, "the URL has no host"},
		"a broken URL":        {types.Resource{Source: ptr("https://user:secret@%zz/x")}, "the URL cannot be read"},
		"another scheme":      {types.Resource{Source: ptr("gs://x/y")}, `sources with the scheme "gs" are not fetched; use http or https with verification.hash, or put the content in as a data URL`},
		"no scheme":           {types.Resource{Source: ptr("hello")}, `the source has no scheme; put the content in as a data URL, such as data:,text`},
		"data in capitals":    {types.Resource{Source: ptr("DATA:,x")}, `sources with the scheme "DATA" are not fetched; use http or https with verification.hash, or put the content in as a data URL`},
		"no comma":            {types.Resource{Source: ptr("data:;base64")}, "reading the data URL: unterminated parameter sequence"},
		"a media type alone":  {types.Resource{Source: ptr("data:text,x")}, "reading the data URL: invalid character for media type"},
		"another encoding":    {types.Resource{Source: ptr("data:;base32,aa")}, "reading the data URL: expected base64, got base32"},
		"a line break":        {types.Resource{Source: ptr("data:;base64,aGVs\nbG8=")}, "reading the data URL: line break at character 5 of the data; write base64 in one line"},
		"URL-safe base64":     {types.Resource{Source: ptr("data:;base64,-_-_")}, "reading the data URL: no base64 at character 1 of the data"},
		"base64 cut short":    {types.Resource{Source: ptr("data:;base64,aGVsbG8")}, "reading the data URL: no base64 at character 5 of the data"},
		"half an escape":      {types.Resource{Source: ptr("data:,a%2")}, "reading the data URL: incomplete %xx at character 2 of the data"},
		"a bad escape":        {types.Resource{Source: ptr("data:,a%2x")}, "reading the data URL: no hexadecimal digits after % at character 2 of the data; write % as %25"},
		"a space":             {types.Resource{Source: ptr("data:,a b")}, "reading the data URL: character ' ' at 2 of the data; write it as %20, or use base64"},
		"a letter of Unicode": {types.Resource{Source: ptr("data:,ä")}, "reading the data URL: character 'Ã' at 1 of the data; write it as %C3, or use base64"},
		"not compressed":      {types.Resource{Source: ptr("data:,hello%20world"), Compression: ptr("gzip")}, `decompressing: gzip: invalid header; set compression to "" if the content is not compressed`},
		"cut short":           {types.Resource{Source: ptr(base64URL(compressed(t, []byte("hello"))[:20])), Compression: ptr("gzip")}, `decompressing: unexpected EOF; set compression to "" if the content is not compressed`},
		"empty, compressed":   {types.Resource{Source: ptr("data:,"), Compression: ptr("gzip")}, `decompressing: EOF; set compression to "" if the content is not compressed`},
		"another compression": {types.Resource{Source: ptr("data:,x"), Compression: ptr("xz")}, `compression "xz" is not known; use gzip, or leave it out`},
		"another hash":        {types.Resource{Source: ptr("data:,x"), Verification: types.Verification{Hash: ptr("md5-00")}}, `verification.hash "md5-00" is not sha256-<sum> or sha512-<sum>`},
		"a short hash":        {types.Resource{Source: ptr("data:,x"), Verification: types.Verification{Hash: ptr("sha256-00")}}, `verification.hash "sha256-00" is not sha256- and 64 hexadecimal digits`},
		"too much": {
			types.Resource{Source: ptr(base64URL(compressed(t, make([]byte, MaxContentSize+1)))), Compression: ptr("gzip")},
			"the content is larger than 64 MiB",
		},
		"the wrong hash": {
			types.Resource{Source: ptr("data:,x"), Verification: types.Verification{Hash: sha256Of("y")}},
			"the content has the hash 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881, but verification.hash is " + (*sha256Of("y"))[7:] + "; correct the one that is wrong",
		},
		"the hash of what is compressed": {
			types.Resource{Source: ptr(base64URL(compressed(t, []byte("x")))), Compression: ptr("gzip"), Verification: types.Verification{Hash: sha256Of(string(compressed(t, []byte("x"))))}},
			"the content has the hash 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881, but verification.hash is " + (*sha256Of(string(compressed(t, []byte("x")))))[7:] + "; correct the one that is wrong",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := DecodeContents(test.resource)
			require.EqualError(t, err, test.want)
			check := decoder{}
			_, err = check.decode(test.resource)
			require.EqualError(t, err, test.want, "checking without keeping comes to the same")
		})
	}
}

func TestCheckFetched(t *testing.T) {
	t.Parallel()
	r := types.Resource{Source: ptr("https://x/y"), Compression: ptr("gzip"), Verification: types.Verification{Hash: sha256Of("hello")}}
	fetched, err := CheckFetched(r, compressed(t, []byte("hello")))
	require.NoError(t, err)
	require.Equal(t, int64(5), fetched.Size)
	var data strings.Builder
	_, err = fetched.WriteTo(&data)
	require.NoError(t, err)
	require.Equal(t, "hello", data.String())
	_, err = CheckFetched(r, compressed(t, []byte("hullo")))
	require.ErrorContains(t, err, "but verification.hash is")
}

func TestDecodedContentsAreCopies(t *testing.T) {
	t.Parallel()
	first, _, err := DecodeContents(types.Resource{Source: ptr("data:,first")})
	require.NoError(t, err)
	_, _, err = DecodeContents(types.Resource{Source: ptr("data:,other")})
	require.NoError(t, err)
	require.Equal(t, "first", string(first))
}

// FuzzDecodeContents compares with the library that Ignition uses. What it accepts, and Ignition
// with it, has to be accepted, with the same bytes.
func FuzzDecodeContents(f *testing.F) {
	for _, seed := range []string{
		"", "data:,", "data:,hello%20world", "data:;base64,aGVsbG8=", "data:text/plain;charset=utf-8;base64,aGVsbG8", "data:,%", "data:,%2", "data:,a#b",
		`data:text/plain;name="a,b",x`, "data:application/octet-stream;a=b;c=d,%00", "data:x-a/b,c", "data:;base64;a=b,c", "data:;a,b", "data:text/,a", "http://x/y",
		"data:;base64,YQ==YQ==", "data:;base64,YR==", "data:text/x;a=%zz,b", "data:multipart/x!;a=b,c", "DATA:,x", "https:x",
	} {
		f.Add(seed, "", "")
		f.Add(seed, "gzip", "sha256-2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881")
	}
	f.Add(base64URL(compressed(f, []byte("x"))), "gzip", "sha256-2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881")
	f.Fuzz(func(t *testing.T, source, compression, hash string) {
		r := types.Resource{Source: &source}
		if compression != "" {
			r.Compression = &compression
		}
		if hash != "" {
			r.Verification.Hash = &hash
		}
		data, remote, err := DecodeContents(r)
		check := decoder{}
		checkedRemote, checkErr := check.decode(r)
		require.Equal(t, err == nil, checkErr == nil)
		require.Equal(t, remote, checkedRemote)
		require.False(t, remote && data != nil)
		if compression != "" || hash != "" || strings.ContainsAny(source, "\r\n") || !strings.HasPrefix(source, "data:") {
			return
		}
		want, wantErr := dataurl.DecodeString(source)
		require.Equal(t, wantErr == nil, err == nil, "library: %v, here: %v", wantErr, err)
		if err == nil {
			require.Equal(t, string(want.Data), string(data))
		}
	})
}

// zeros is a file of compressed zeros, whose path has a number.
func zeros(t *testing.T, number, size int) string {
	t.Helper()
	return fmt.Sprintf(`{"path":"/etc/zeros-%d","contents":{"source":%q,"compression":"gzip"}}`, number, base64URL(compressed(t, make([]byte, size))))
}

func TestContentsTogetherAreBounded(t *testing.T) {
	t.Parallel()
	const half = MaxContents / 2
	one := func(name string, files ...string) *mcfgv1.MachineConfig {
		return machineConfig(name, `{"ignition":{"version":"3.5.0"},"storage":{"files":[`+strings.Join(files, ",")+`]}}`)
	}
	first, second, third := zeros(t, 1, half), zeros(t, 2, half), zeros(t, 3, 1)
	_, err := Parse(one("50-much", first, second))
	require.NoError(t, err)
	_, err = Parse(one("50-much", first, second, third))
	require.ErrorContains(t, err, `MachineConfig "50-much": storage.files[2].contents.source (file "/etc/zeros-3")`)
	require.ErrorContains(t, err, "the contents have more than 64 MiB together: bring large files with the Containerfile")
	_, err = Render(Options{Pool: "worker"}, []*mcfgv1.MachineConfig{one("50-a", third), one("60-much", first, second)})
	require.ErrorContains(t, err, `MachineConfig "60-much": spec.config.storage.files: with those of the pool's other MachineConfigs, the contents have more`)
}
