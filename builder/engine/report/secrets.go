package report

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// removed stands where a secret stood.
const removed = "[removed]"

// shortest is how long a secret has to be to be removed: of shorter ones every text has some.
const shortest = 4

// Secrets are strings that a step knows and must not tell. The zero value has none.
type Secrets struct{ replacer *strings.Replacer }

// NewSecrets reads files of credentials, as .dockerconfigjson has them. What is no JSON is a secret
// as a whole. Of each secret its base64 is one too. Names of users are none: messages of registries
// need them.
func NewSecrets(files ...[]byte) Secrets {
	found := map[string]bool{}
	for _, file := range files {
		var content any
		if err := json.Unmarshal(file, &content); err != nil {
			content = map[string]any{"password": strings.TrimSpace(string(file))}
		}
		collect(content, found)
	}
	var all []string
	for secret := range found {
		if len(secret) < shortest {
			continue
		}
		all = append(all, secret)
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			all = append(all, encoding.EncodeToString([]byte(secret)))
		}
	}
	if len(all) == 0 {
		return Secrets{}
	}
	// Of two that begin at one place the longer one is removed.
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, secret := range all {
		pairs = append(pairs, secret, removed)
	}
	return Secrets{replacer: strings.NewReplacer(pairs...)}
}

// collect finds the values of credentials in what JSON says.
func collect(content any, found map[string]bool) {
	object, isObject := content.(map[string]any)
	if !isObject {
		return
	}
	for key, value := range object {
		text, isText := value.(string)
		switch strings.ToLower(key) {
		case "auth":
			found[text] = true
			if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
				_, password, _ := strings.Cut(string(plain), ":")
				found[string(plain)], found[password] = true, true
			}
		case "password", "identitytoken", "registrytoken":
			found[text] = true
		}
		if !isText {
			collect(value, found)
		}
	}
}

// Remove is the text without the secrets.
func (s Secrets) Remove(text string) string {
	if s.replacer == nil {
		return text
	}
	return s.replacer.Replace(text)
}

// Writer passes text on without the secrets. Each call has to have whole lines, as those of Output
// have.
func (s Secrets) Writer(w io.Writer) io.Writer {
	if s.replacer == nil {
		return w
	}
	return &discreet{w: w, secrets: s}
}

type discreet struct {
	w       io.Writer
	secrets Secrets
}

func (d *discreet) Write(p []byte) (int, error) {
	if _, err := io.WriteString(d.w, d.secrets.Remove(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
