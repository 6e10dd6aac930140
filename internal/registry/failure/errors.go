package failure

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/wire"
)

// readOnlyRecheck is when a registry that takes no uploads is looked at again.
const readOnlyRecheck = 5 * time.Minute

// Error is what went wrong between a client and a registry. Its text has no secrets; what it wraps
// may have.
type Error struct {
	// Doing is what was tried, in the gerund, and Subject with what: an image or a repository.
	Doing, Subject string
	// Status is the status of the registry's answer; 0 where none came.
	Status int

	Meaning
	err error
}

// Error says what was tried, what happened and what helps.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s %q: %s", e.Doing, e.Subject, e.Problem)
	if e.fix != "" {
		text += "; " + e.fix
	}
	return fault.Clean(text)
}

// Unwrap gives what happened.
func (e *Error) Unwrap() error { return e.err }

// IsNotFound reports whether err says that an image or a part of it does not exist.
func IsNotFound(err error) bool { return kindOf(err) == NotFound }

// IsDenied reports whether err says that the credentials, or their lack, do not allow what was
// tried.
func IsDenied(err error) bool { return kindOf(err) == Denied }

// IsImmutable reports whether err says that a tag stands for something else already, and that the
// registry lets no one change that.
func IsImmutable(err error) bool { return kindOf(err) == Immutable }

func kindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Other
}

// Kind is what a registry's answer says, in general.
type Kind int

// What answers say.
const (
	Other Kind = iota
	NotFound
	Denied
	Unsupported
	Immutable // a tag that stands for something else and may not be moved
	Lost      // a part of what is being uploaded; the next try uploads it again
	TooLarge  // to be uploaded
	ReadOnly  // for now, or for ever
)

// Meaning is what an answer means for what was tried.
type Meaning struct {
	Kind         Kind
	Class        fault.Class
	Reason       string
	Problem, fix string
}

// What a registry says to this module's clients gets its class here. Base images and build steps
// have tables of their own, by the same Kind. What is not listed may pass by itself.
var (
	reading = map[Kind]Meaning{
		NotFound:    final(mcfgv1.ReasonImageNotFound, "it does not exist", "check the name, or push it again"),
		Denied:      final(mcfgv1.ReasonImageNotFound, "the registry denies read access", ""),
		Unsupported: final(mcfgv1.ReasonInvalid, "the registry can't serve it", ""),
		ReadOnly:    final(mcfgv1.ReasonInvalid, "the registry can't serve it", ""),
	}
	writing = map[Kind]Meaning{
		Immutable: final(mcfgv1.ReasonPushDenied, "the tag stands for another image, and the registry's tags are immutable",
			"except it from that rule of the registry"),
		Denied:   final(mcfgv1.ReasonPushDenied, "the registry denies write access", ""),
		NotFound: final(mcfgv1.ReasonPushDenied, "the repository does not exist", "create it, since this registry does not do so by itself"),
		TooLarge: final(mcfgv1.ReasonPushDenied, "the registry takes no uploads of this size", "raise the limit of the registry or of the proxy before it"),
		ReadOnly: {
			Class: fault.Waiting, Reason: mcfgv1.ReasonWaiting, Problem: "the registry takes no uploads", fix: "it may be read-only for now, or a mere mirror",
		},
		Unsupported: final(mcfgv1.ReasonInvalid, "the registry does not take such an image", ""),
	}
)

func final(reason, problem, fix string) Meaning {
	return Meaning{Class: fault.Terminal, Reason: reason, Problem: problem, fix: fix}
}

// marked is the error with its class.
func (e *Error) marked() error {
	switch e.Class {
	case fault.Terminal:
		return fault.NewTerminal(e.Reason, e)
	case fault.Waiting:
		return fault.NewWaiting(e.Reason, readOnlyRecheck, e)
	default:
		return e
	}
}

// Call is one thing that is tried.
type Call struct {
	Doing, Subject string
	Writes         bool
	// Host is the registry, and Anonymous says that there are no credentials for it. Unnamed is
	// what would name a secret with some, where nothing does.
	Host      string
	Anonymous bool
	Unnamed   string
	// Logins reports whether the credentials are a person's and of no secret.
	Logins bool
	// Unreachable is told why the registry can't be reached, instead of the error; nil has the
	// error say it.
	Unreachable func(registry string, err error)
}

// Fail is the error of the call; nil stays nil. What has been classified already, further down,
// stays as it is: the first to know is right.
func (c Call) Fail(err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return known.marked()
	}
	if fault.ClassOf(err) != fault.Transient { // such as the end of a layer that is made while it is sent
		return fmt.Errorf("%s %q: %w", c.Doing, c.Subject, err)
	}
	e := &Error{Doing: c.Doing, Subject: c.Subject, err: err}
	var answer *transport.Error
	var pause *wire.PauseError
	switch {
	case c.Unreachable != nil && isUnreachable(err):
		c.Unreachable(c.Host, err)
		e.Problem = fmt.Sprintf("the registry %q can't be reached: it refuses connections, does not answer, or is no registry", c.Host)
		e.fix = "check its host and port, and allow it with --plain-http-registry where it has no TLS; the log of the controller says more"
	case errors.As(err, &answer):
		e.Status = answer.StatusCode
		e.Meaning = c.meaningOf(answer)
	case errors.As(err, &pause):
		e.Problem = pause.Error()
	case errors.Is(err, wire.ErrLargeManifest):
		e.Meaning = found(Unsupported, wire.ErrLargeManifest.Error())
	case errors.Is(err, wire.ErrManyValues):
		e.Meaning = found(Unsupported, wire.ErrManyValues.Error())
	case errors.Is(err, remote.ErrSchema1):
		e.Meaning = found(Unsupported, "it has a manifest of Docker's first schema, which holds no image that can be built on")
	default:
		e.Problem = err.Error()
	}
	return e.marked()
}

// Refuse is an error that was found without the registry's help.
func (c Call) Refuse(k Kind, problem string) error {
	return (&Error{Doing: c.Doing, Subject: c.Subject, Meaning: found(k, problem), err: errors.New(problem)}).marked()
}

// found is the meaning of something that is there and not what was wanted.
func found(k Kind, problem string) Meaning {
	return Meaning{Kind: k, Class: reading[k].Class, Reason: reading[k].Reason, Problem: problem}
}

func (c Call) meaningOf(answer *transport.Error) Meaning {
	kind, do, meanings := KindOfAnswer(answer), "pull", reading
	if c.Writes {
		kind, do, meanings = kindOfWrite(answer), "push", writing
	}
	m := meanings[kind]
	if m.Kind = kind; kind == Denied {
		m.fix = c.whoMay(do)
	}
	m.Problem = fmt.Sprintf("%s (%s)", cmp.Or(m.Problem, "the registry fails"), Describe(answer))
	return m
}

// kindOfWrite knows what else the status says of an upload, and what of it was lost.
func kindOfWrite(answer *transport.Error) Kind {
	k := KindOfAnswer(answer)
	switch {
	case k == Immutable, k == Denied, k == NotFound && !lacksPart(answer):
		return k
	case answer.StatusCode == http.StatusRequestEntityTooLarge:
		return TooLarge
	case answer.StatusCode == http.StatusMethodNotAllowed:
		return ReadOnly
	case k == NotFound:
		return Lost
	}
	return k
}

// lacksPart reports whether what is written names a manifest or a layer that the repository had a
// moment ago, and has no more.
func lacksPart(answer *transport.Error) bool {
	return slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool {
		return d.Code == transport.ManifestUnknownErrorCode || d.Code == transport.BlobUnknownErrorCode
	})
}

// whoMay says what helps where access was refused.
func (c Call) whoMay(do string) string {
	switch {
	case c.Logins && c.Anonymous:
		return fmt.Sprintf("log in with \"podman login %s\" or \"docker login %s\"", c.Host, c.Host)
	case c.Logins:
		return fmt.Sprintf("check that the account of your login to %q may %s it, and that its password still holds", c.Host, do)
	}
	if c.Anonymous && c.Unnamed != "" {
		return fmt.Sprintf("no secret with credentials for %q is named: name one in %s", c.Host, c.Unnamed)
	}
	if c.Anonymous {
		return fmt.Sprintf("the %s secret has no credentials for %q", do, c.Host)
	}
	return fmt.Sprintf("check that the %s secret's account for %q may %s it, and that its password still holds", do, c.Host, do)
}

// codes say more than the status, where a registry gives them (OCI distribution specification,
// "Error Codes").
var codes = map[transport.ErrorCode]Kind{
	transport.BlobUploadInvalidErrorCode:   Lost,
	transport.BlobUploadUnknownErrorCode:   Lost,
	transport.DigestInvalidErrorCode:       Lost,
	transport.ManifestBlobUnknownErrorCode: Lost,
	transport.SizeInvalidErrorCode:         Lost,
	transport.BlobUnknownErrorCode:         NotFound,
	transport.ManifestUnknownErrorCode:     NotFound,
	transport.NameUnknownErrorCode:         NotFound,
	transport.DeniedErrorCode:              Denied,
	transport.UnauthorizedErrorCode:        Denied,
	transport.ManifestInvalidErrorCode:     Unsupported,
	transport.ManifestUnverifiedErrorCode:  Unsupported,
	transport.NameInvalidErrorCode:         Unsupported,
	transport.TagInvalidErrorCode:          Unsupported,
	transport.UnsupportedErrorCode:         Unsupported,
}

// KindOfAnswer reads codes before the status. A 5xx or 429 is never more than a failure, whatever
// its text claims.
func KindOfAnswer(answer *transport.Error) Kind {
	if IsTransient(answer.StatusCode) {
		return Other
	}
	if isAboutImmutableTag(answer) {
		return Immutable
	}
	kinds := map[Kind]bool{}
	for _, diagnostic := range answer.Errors {
		kinds[codes[diagnostic.Code]] = true
	}
	for _, k := range []Kind{Lost, Denied, NotFound, Unsupported} {
		if kinds[k] {
			return k
		}
	}
	switch answer.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		return NotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return Denied
	case http.StatusNotAcceptable, http.StatusUnsupportedMediaType:
		return Unsupported
	case http.StatusMethodNotAllowed:
		return ReadOnly
	case http.StatusRequestEntityTooLarge:
		return TooLarge
	case http.StatusBadRequest:
		if isTokenRequest(answer.Request) { // how OAuth refuses a refresh token (RFC 6749, 5.2)
			return Denied
		}
	}
	return Other
}

// isAboutImmutableTag reports whether a registry refuses to move a tag. No code of the
// specification says so: ECR answers 400 TAG_INVALID, Harbor 412 PRECONDITION, Quay 409
// TAG_IMMUTABLE, and all say it in words.
func isAboutImmutableTag(answer *transport.Error) bool {
	switch answer.StatusCode {
	case http.StatusBadRequest, http.StatusConflict, http.StatusPreconditionFailed:
	default:
		return false
	}
	return slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool {
		return d.Code == "TAG_IMMUTABLE" || strings.Contains(strings.ToLower(d.Message), "immutable")
	})
}

// IsTransient reports whether a status says that the next try may succeed.
func IsTransient(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

func isTokenRequest(request *http.Request) bool {
	return request != nil && request.URL != nil && !strings.HasPrefix(request.URL.Path, "/v2/")
}

// Describe is the registry's answer in a line: status, codes and messages. A body that is none of
// the protocol is left out: it is a page of a proxy, at best.
func Describe(answer *transport.Error) string {
	parts := []string{fmt.Sprintf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode))}
	const enough = 3
	for _, diagnostic := range answer.Errors[:min(len(answer.Errors), enough)] {
		text := strings.Trim(string(diagnostic.Code)+": "+firstLine(diagnostic.Message), ": ")
		if text != "" && !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ", ")
}

// firstLine is where a message says what it is about.
func firstLine(message string) string {
	const enough = 200
	line, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	if runes := []rune(line); len(runes) > enough {
		return string(runes[:enough]) + "..."
	}
	return line
}
