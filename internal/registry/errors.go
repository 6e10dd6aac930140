package registry

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

	meaning
	err error
}

// Error says what was tried, what happened and what helps.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s %q: %s", e.Doing, e.Subject, e.problem)
	if e.fix != "" {
		text += "; " + e.fix
	}
	return fault.Clean(text)
}

// Unwrap gives what happened.
func (e *Error) Unwrap() error { return e.err }

// IsNotFound reports whether err says that an image or a part of it does not exist.
func IsNotFound(err error) bool { return kindOf(err) == notFound }

// IsDenied reports whether err says that the credentials, or their lack, do not allow what was
// tried.
func IsDenied(err error) bool { return kindOf(err) == denied }

func kindOf(err error) kind {
	var e *Error
	if errors.As(err, &e) {
		return e.kind
	}
	return other
}

// kind is what a registry's answer says, in general.
type kind int

const (
	other kind = iota
	notFound
	denied
	unsupported
	lost // a part of what is being uploaded; the next try uploads it again
)

// meaning is what an answer means for what was tried.
type meaning struct {
	kind         kind
	class        fault.Class
	reason       string
	problem, fix string
}

// marked is the error with its class.
func (e *Error) marked() error {
	switch e.class {
	case fault.Terminal:
		return fault.NewTerminal(e.reason, e)
	case fault.Waiting:
		return fault.NewWaiting(e.reason, readOnlyRecheck, e)
	default:
		return e
	}
}

// call is one thing that is tried.
type call struct {
	doing, subject string
	writes         bool
	// host is the registry, and anonymous says that there are no credentials for it.
	host      string
	anonymous bool
}

// fail is the error of the call; nil stays nil. What has been classified already, further down,
// stays as it is: the first to know is right.
func (c call) fail(err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return known.marked()
	}
	if fault.ClassOf(err) != fault.Transient { // such as the end of a layer that is made while it is sent
		return fmt.Errorf("%s %q: %w", c.doing, c.subject, err)
	}
	e := &Error{Doing: c.doing, Subject: c.subject, err: err}
	var answer *transport.Error
	var pause *pauseError
	switch {
	case errors.As(err, &answer):
		e.Status = answer.StatusCode
		e.meaning = c.meaningOf(answer)
	case errors.As(err, &pause):
		e.problem = pause.Error()
	case errors.Is(err, errLargeManifest):
		e.meaning = c.unsupported(errLargeManifest.Error())
	case errors.Is(err, errManyValues):
		e.meaning = c.unsupported(errManyValues.Error())
	case errors.Is(err, remote.ErrSchema1):
		e.meaning = c.unsupported("it has a manifest of Docker's first schema, which holds no image that can be built on")
	default:
		e.problem = err.Error()
	}
	return e.marked()
}

// refuse is an error that was found without the registry's help.
func (c call) refuse(m meaning) error {
	return (&Error{Doing: c.doing, Subject: c.subject, meaning: m, err: errors.New(m.problem)}).marked()
}

// unsupported is the meaning of something that is there and no image for us.
func (c call) unsupported(problem string) meaning {
	return meaning{kind: unsupported, class: fault.Terminal, reason: mcfgv1.ReasonInvalid, problem: problem}
}

func (c call) meaningOf(answer *transport.Error) meaning {
	m := meaning{kind: kindOfAnswer(answer)}
	if c.writes {
		if m.kind == notFound && lacksPart(answer) {
			m.kind = lost
		}
		m = c.meaningForWriting(m.kind, answer.StatusCode)
	} else {
		m = c.meaningForReading(m.kind)
	}
	m.problem = fmt.Sprintf("%s (%s)", cmp.Or(m.problem, "the registry fails"), describe(answer))
	return m
}

// lacksPart reports whether what is written names a manifest or a layer that the repository had a
// moment ago, and has no more.
func lacksPart(answer *transport.Error) bool {
	return slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool {
		return d.Code == transport.ManifestUnknownErrorCode || d.Code == transport.BlobUnknownErrorCode
	})
}

func (c call) meaningForReading(k kind) meaning {
	m := meaning{kind: k, class: fault.Terminal}
	switch k {
	case notFound:
		m.reason, m.problem, m.fix = mcfgv1.ReasonImageNotFound, "it does not exist", "check the name, or push it anew"
	case denied:
		m.reason, m.problem = mcfgv1.ReasonImageNotFound, "it may not be pulled"
		m.fix = c.whoMay("pull")
	case unsupported:
		m.reason, m.problem = mcfgv1.ReasonInvalid, "the registry can't give it"
	case other, lost:
		m.class = fault.Transient
	}
	return m
}

func (c call) meaningForWriting(k kind, status int) meaning {
	m := meaning{kind: k, class: fault.Terminal, reason: mcfgv1.ReasonPushDenied}
	switch {
	case k == denied:
		m.problem, m.fix = "it may not be written", c.whoMay("push")
	case k == notFound:
		m.problem, m.fix = "the repository does not exist", "create it, since this registry does not do so by itself"
	case status == http.StatusRequestEntityTooLarge:
		m.problem, m.fix = "the registry takes no uploads of this size", "raise the limit of the registry or of the proxy before it"
	case status == http.StatusMethodNotAllowed:
		m.class, m.reason = fault.Waiting, mcfgv1.ReasonWaiting
		m.problem, m.fix = "the registry takes no uploads", "it may be read-only for now, or a mere mirror"
	case k == unsupported:
		m.reason, m.problem = mcfgv1.ReasonInvalid, "the registry does not take such an image"
	default:
		m.class, m.reason = fault.Transient, ""
	}
	return m
}

// whoMay says what helps where access was refused.
func (c call) whoMay(do string) string {
	if c.anonymous {
		return fmt.Sprintf("the %s secret has no credentials for %q", do, c.host)
	}
	return fmt.Sprintf("check that the %s secret's account for %q may %s it, and that its password still holds", do, c.host, do)
}

// codes say more than the status, where a registry gives them (OCI distribution specification,
// "Error Codes").
var codes = map[transport.ErrorCode]kind{
	transport.BlobUploadInvalidErrorCode:   lost,
	transport.BlobUploadUnknownErrorCode:   lost,
	transport.DigestInvalidErrorCode:       lost,
	transport.ManifestBlobUnknownErrorCode: lost,
	transport.SizeInvalidErrorCode:         lost,
	transport.BlobUnknownErrorCode:         notFound,
	transport.ManifestUnknownErrorCode:     notFound,
	transport.NameUnknownErrorCode:         notFound,
	transport.DeniedErrorCode:              denied,
	transport.UnauthorizedErrorCode:        denied,
	transport.ManifestInvalidErrorCode:     unsupported,
	transport.NameInvalidErrorCode:         unsupported,
	transport.TagInvalidErrorCode:          unsupported,
	transport.UnsupportedErrorCode:         unsupported,
}

// kindOfAnswer reads codes before the status. A 5xx or 429 is never more than a failure, whatever
// its text claims.
func kindOfAnswer(answer *transport.Error) kind {
	if passes(answer.StatusCode) {
		return other
	}
	kinds := map[kind]bool{}
	for _, diagnostic := range answer.Errors {
		kinds[codes[diagnostic.Code]] = true
	}
	for _, k := range []kind{lost, denied, notFound, unsupported} {
		if kinds[k] {
			return k
		}
	}
	switch answer.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		return notFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return denied
	case http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType:
		return unsupported
	case http.StatusBadRequest:
		if isTokenRequest(answer.Request) { // how OAuth refuses a refresh token (RFC 6749, 5.2)
			return denied
		}
	}
	return other
}

func passes(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

func isTokenRequest(request *http.Request) bool {
	return request != nil && request.URL != nil && !strings.HasPrefix(request.URL.Path, "/v2/")
}

// describe is the registry's answer in a line: status, codes and messages. A body that is none of
// the protocol is left out: it is a page of a proxy, at best.
func describe(answer *transport.Error) string {
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
