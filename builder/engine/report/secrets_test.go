package report

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSecretsAreRemoved(t *testing.T) {
	t.Parallel()
	login := base64.StdEncoding.EncodeToString([]byte("robot:pass:word"))
	file := fmt.Sprintf(`{"auths":{"a.example":{"auth":%q},"b.example":{"username":"robot","password":"other-word","identitytoken":"token-of-b"}}}`, login)
	secrets := NewSecrets([]byte(file), []byte("no JSON\n"))
	tests := map[string]struct{ text, want string }{
		"the login":                {"a " + login + " b", "a [removed] b"},
		"its password":             {"robot says pass:word", "robot says [removed]"},
		"both, plain":              {"robot:pass:word", "[removed]"},
		"a password":               {"other-word", "[removed]"},
		"a password in base64":     {base64.StdEncoding.EncodeToString([]byte("other-word")), "[removed]"},
		"a token":                  {`"token-of-b"`, `"[removed]"`},
		"a file that is no JSON":   {"it has no JSON", "it has [removed]"},
		"the name of a user":       {"robot at b.example", "robot at b.example"},
		"a file cut at its commas": {strings.Join(strings.Split(file, ","), "\n"), "\x00"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := secrets.Remove(tt.text)
			if tt.want != "\x00" {
				assert.Equal(t, tt.want, got)
			}
			for _, secret := range []string{login, "pass:word", "other-word", "token-of-b"} {
				assert.NotContains(t, got, secret)
			}
		})
	}
	assert.Equal(t, "as it was", Secrets{}.Remove("as it was"))
	assert.Equal(t, "a b c", NewSecrets([]byte(`{"auths":{"a":{"password":"b"}}}`)).Remove("a b c"), "every text has a secret that short")
}

func TestFailuresHaveNoSecret(t *testing.T) {
	t.Parallel()
	secrets := NewSecrets([]byte(`{"auths":{"a.example":{"password":"hunter2-hunter2"}}}`))
	long := strings.Repeat("x", maxMessage-8) + "hunter2-hunter2"
	failure := secrets.FailureOf(NewInterrupted("pulling hunter2-hunter2", errors.New(long)))
	assert.NotContains(t, failure.Message, "hunter2", "a secret that is cut is one too")
	assert.Equal(t, "pulling [removed]", failure.At)
	for before := range 2 * maxMessage {
		message := secrets.FailureOf(errors.New(strings.Repeat("x", before) + "hunter2-hunter2" + strings.Repeat("x", maxMessage))).Message
		require.NotContains(t, message, "hunter", "it is gone before the text is cut, %d characters behind its beginning", before)
		require.NotContains(t, message, "unter2", "%d characters behind the beginning", before)
	}
}

func TestSecretsAreNotWritten(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := NewSecrets([]byte(`{"auths":{"a.example":{"password":"hunter2-hunter2"}}}`)).Writer(&out)
	n, err := w.Write([]byte("a hunter2-hunter2\n"))
	require.NoError(t, err)
	assert.Equal(t, len("a hunter2-hunter2\n"), n)
	assert.Equal(t, "a [removed]\n", out.String())
}
