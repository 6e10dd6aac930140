package fault_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/fault"
)

func TestCut(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"nothing":                         {"", ""},
		"short text is left alone":        {"building image: exit status 1", "building image: exit status 1"},
		"exactly the limit":               {strings.Repeat("x", fault.MaxMessage), strings.Repeat("x", fault.MaxMessage)},
		"runes count, not bytes":          {strings.Repeat("ä", fault.MaxMessage), strings.Repeat("ä", fault.MaxMessage)},
		"space at the ends goes":          {" \n a b \t\n", "a b"},
		"lines and tabs stay":             {"line 3:\n\tRUN dnf install x", "line 3:\n\tRUN dnf install x"},
		"colours go":                      {"\x1b[31merror\x1b[0m\r\n", "[31merror[0m"},
		"what is no UTF-8 becomes U+FFFD": {"a\xff\xfeb", "a�b"},
		"only control characters":         {"\x00\x01\x7f", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, fault.Cut(tt.text))
		})
	}
}

func TestCutKeepsBothEnds(t *testing.T) {
	t.Parallel()
	err := errors.New("no space left on device")
	for range 200 {
		err = fmt.Errorf("pushing läyer: %w", err)
	}
	got := fault.Message(err)
	assert.Equal(t, fault.MaxMessage, utf8.RuneCountInString(got))
	assert.True(t, strings.HasPrefix(got, "pushing läyer: pushing"), got)
	assert.True(t, strings.HasSuffix(got, "läyer: no space left on device"), got)
	assert.Contains(t, got, " ... ")
}

func TestMessage(t *testing.T) {
	t.Parallel()
	assert.Empty(t, fault.Message(nil))
	err := fmt.Errorf("pulling %q: %w", "https://robot:s3cret@quay.io/v2/", errors.New("denied\x1b[0m\n with colour"))
	assert.Equal(t, `pulling "https://REDACTED@quay.io/v2/": denied[0m
 with colour`, fault.Message(err))
}

func TestMessageRedactsBeforeItCuts(t *testing.T) {
	t.Parallel()
	for before := range 40 { // move the secret across the cut
		text := strings.Repeat("x", fault.MaxMessage/2-before) + " https://robot:hunter2@quay.io " + strings.Repeat("y", fault.MaxMessage)
		assert.NotContains(t, fault.Clean(text), "hunter")
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"no URL":               {"user:pass@host is no URL", "user:pass@host is no URL"},
		"nothing secret":       {`Get "https://quay.io/v2/": EOF`, `Get "https://quay.io/v2/": EOF`},
		"password":             {`Get "https://bot:pass@quay.io/v2/": EOF`, `Get "https://REDACTED@quay.io/v2/": EOF`},
		"name without one":     {"ssh://git@example.test/x", "ssh://REDACTED@example.test/x"},
		"an @ in the password": {"http://a:b@c@host:80/x@y", "http://REDACTED@host:80/x@y"},
		"two in one text":      {"from http://a:b@c to HTTPS://d:e@f.", "from http://REDACTED@c to HTTPS://REDACTED@f."},
		"signed redirect": {
			"Get https://s3.test/blob?X-Amz-Date=1&X-Amz-Signature=abc#f: 403",
			"Get https://s3.test/blob?X-Amz-Date=REDACTED&X-Amz-Signature=REDACTED 403",
		},
		"harmless query": {
			"GET https://quay.io/token?scope=repository:x:pull&service=quay.io&token=t",
			"GET https://quay.io/token?scope=repository:x:pull&service=quay.io&token=REDACTED",
		},
		"query without path":     {"http://a:b@host?sig=1", "http://REDACTED@host?sig=REDACTED"},
		"query without values":   {"http://host/x?watch", "http://host/x?watch"},
		"a pinned reference":     {"docker://quay.io/x/y@sha256:0a1b", "docker://quay.io/x/y@sha256:0a1b"},
		"pinned, no slash":       {"oci://name@sha256:0a1b", "oci://name@sha256:0a1b"},
		"pinned, no slash, user": {"oci://u:p@name@sha256:0a1b", "oci://REDACTED@name@sha256:0a1b"},
		"a scheme alone":         {"see https:// for more", "see https:// for more"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, fault.Redact(tt.text))
			assert.Equal(t, tt.want, fault.Redact(tt.want), "twice is the same as once")
		})
	}
}

func FuzzCut(f *testing.F) {
	f.Add("building image: exit status 1")
	f.Add(strings.Repeat("é", 2*fault.MaxMessage))
	f.Add(strings.Repeat(" x", fault.MaxMessage))
	f.Add(strings.Repeat("\U0001F600", fault.MaxMessage+1))
	f.Add(strings.Repeat("\xf0\x9f\x98", fault.MaxMessage))
	f.Fuzz(func(t *testing.T, text string) {
		got := fault.Cut(text)
		require.True(t, utf8.ValidString(got))
		require.LessOrEqual(t, utf8.RuneCountInString(got), fault.MaxMessage)
		require.Equal(t, got, fault.Cut(got), "twice is the same as once")
		require.Equal(t, -1, strings.IndexFunc(got, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }))
		if utf8.ValidString(text) && !strings.Contains(got, " ... ") {
			require.Equal(t, strings.TrimSpace(strings.Map(dropControl, text)), got, "what fits is kept whole")
		}
	})
}

func FuzzRedact(f *testing.F) {
	f.Add("https://user:", "@host/path?x=1")
	f.Add("Get \"http://", "@")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "hunter2hunter2"
		got := fault.Redact(before + "://user:" + secret + "@host" + after)
		once := fault.Redact(got)
		require.Equal(t, once, fault.Redact(once), "it settles")
		if before != "" && isLetter(before[len(before)-1]) && !strings.ContainsAny(before, ":/") {
			require.NotContains(t, got, secret)
		}
	})
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

func dropControl(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return -1
	}
	return r
}
