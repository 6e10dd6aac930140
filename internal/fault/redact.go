package fault

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// WithoutURL is an error of an HTTP client without the address that it names, which may have a
// secret in it.
func WithoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// redacted stands where Redact took a secret out.
const redacted = "REDACTED"

// urls finds what looks like a URL in running text.
var urls = regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://[^\\s\"'`<>]+")

// Redact takes what may be secret out of the URLs in text: the user info, and the value of every
// query parameter that is not known to be harmless (a registry's answer may redirect to a signed
// URL, and net/http puts that into its errors).
func Redact(text string) string {
	if !strings.Contains(text, "://") { // most texts
		return text
	}
	return urls.ReplaceAllStringFunc(text, redactURL)
}

func redactURL(url string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	authority, rest := splitBefore(rest, "/?#")
	path, query := splitBefore(rest, "?")
	return scheme + "://" + redactUserInfo(authority) + path + redactQuery(query)
}

// redactUserInfo redacts up to the last "@", as net/url reads it. A digest after an "@" is none of
// a host's business: it is found in references such as docker-archive://name@sha256:...
func redactUserInfo(authority string) string {
	at := strings.LastIndex(authority, "@")
	if at < 0 {
		return authority
	}
	if host := authority[at+1:]; strings.HasPrefix(host, "sha256:") || strings.HasPrefix(host, "sha512:") {
		return redactUserInfo(authority[:at]) + authority[at:]
	}
	return redacted + authority[at:]
}

// redactQuery redacts the query and fragment of a URL, which begins with its "?" unless it is
// empty.
func redactQuery(query string) string {
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, found := strings.Cut(pair, "=")
		if found && !isHarmless(strings.TrimPrefix(name, "?")) {
			pairs[i] = name + "=" + redacted
		}
	}
	return strings.Join(pairs, "&")
}

// isHarmless reports whether a query parameter helps to understand an error and never holds a
// secret. The first line is those of registries, the second those of the Kubernetes API.
func isHarmless(parameter string) bool {
	switch parameter {
	case "service", "scope", "mount", "from", "digest", "n", "last",
		"fieldManager", "fieldValidation", "force", "timeout", "limit", "resourceVersion", "labelSelector", "fieldSelector":
		return true
	}
	return false
}

// splitBefore splits text before the first of the given characters.
func splitBefore(text, chars string) (before, from string) {
	if i := strings.IndexAny(text, chars); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}
