package leaks_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/test/leaks"
)

const planted = "planted \"secret\"\x01\xfe\xff\n"

func packed(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}

func TestHuntFinds(t *testing.T) {
	t.Parallel()
	quoted, err := json.Marshal(map[string]string{"a": planted})
	require.NoError(t, err)
	der := bytes.Repeat([]byte("0123456789abcdef"), 8)
	key := string(pem.EncodeToMemory(&pem.Block{Type: "KEY", Bytes: der}))
	lines := strings.Split(key, "\n")
	tests := map[string]struct{ content, want string }{
		"as it is":              {"x" + planted + "y", "plain"},
		"JSON":                  {string(quoted), "plain"},
		"hexadecimal":           {"x" + hex.EncodeToString([]byte(planted)), "plain"},
		"base64":                {base64.StdEncoding.EncodeToString([]byte(planted)), "plain"},
		"base64 behind 1 byte":  {base64.StdEncoding.EncodeToString([]byte("a" + planted + "b")), "plain"},
		"base64 behind 2 bytes": {base64.StdEncoding.EncodeToString([]byte("ab" + planted + "cd")), "plain"},
		"base64 behind 3 bytes": {base64.RawURLEncoding.EncodeToString([]byte("abc" + planted + "de")), "plain"},
		"gzip":                  {packed(t, "x"+planted), "plain"},
		"a key":                 {key, "key"},
		"a line of a key":       {"..." + lines[2] + "...", "key"},
		"a key in DER":          {string(der), "key"},
		"a key in one line":     {base64.StdEncoding.EncodeToString(der), "key"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, err := leaks.New(map[string][]byte{"plain": []byte(planted), "key": []byte(key)})
			require.NoError(t, err)
			h.Search("log", "there", []byte(tt.content))
			h.Search("event", "elsewhere", []byte("nothing, and "+packed(t, "nothing")))
			require.Len(t, h.Found(), 1)
			assert.Regexp(t, "^log: "+tt.want+` in there( \(unpacked\))?$`, h.Found()[0])
			assert.Equal(t, []string{"log"}, h.FoundIn())
			assert.Equal(t, 1, h.Looked()["event"])
		})
	}
}

func TestHuntFindsNothing(t *testing.T) {
	t.Parallel()
	h, err := leaks.New(map[string][]byte{"plain": []byte(planted)})
	require.NoError(t, err)
	for _, content := range []string{"", "planted", "\x1f\x8b no gzip", base64.StdEncoding.EncodeToString([]byte("planted"))} {
		h.Search("log", "there", []byte(content))
	}
	assert.Empty(t, h.Found())
}

func TestGeneric(t *testing.T) {
	t.Parallel()
	h, err := leaks.New(leaks.Generic())
	require.NoError(t, err)
	h.Search("log", "a", []byte("-----BEGIN EC PRIVATE "+"KEY-----"))
	h.Search("log", "b", []byte("Bearer eyJhbGci"+"OiJSUzI1NiJ9.x.y"))
	h.Search("log", "c", []byte(base64.StdEncoding.EncodeToString([]byte("data: -----BEGIN EC PRIVATE "+"KEY-----"))))
	assert.Equal(t, []string{"log: a private key in PEM in a", "log: a private key in PEM in c", "log: a token in b"}, h.Found())
}

func TestSecretsOfChance(t *testing.T) {
	t.Parallel()
	_, err := leaks.New(map[string][]byte{"short": []byte("1234567")})
	require.ErrorContains(t, err, `"short"`)
}
