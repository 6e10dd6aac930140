package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/failure"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
	"github.com/layerwright/layerwright/internal/registry/wire"
	"github.com/layerwright/layerwright/internal/version"
)

// Options configure a Client. The zero value is one that logs in nowhere.
type Options struct {
	// Transport makes the requests; nil is go-containerregistry's, which heeds the proxies of the
	// environment. It needs no time limit for whole requests, since a layer may take long: the
	// caller's context has it.
	Transport http.RoundTripper
	// Keychain has the credentials, such as a dockerconfig.Store; nil is none.
	Keychain authn.Keychain
	// UserAgent is how the client calls itself, "layerwright/<version>" where empty.
	UserAgent string
	// PlainHTTP are the hosts that may be talked to without TLS: with a port, or without one for
	// all of theirs. Loopback addresses may always.
	PlainHTTP []string
	// Pointers decide where registries may point to.
	Pointers wire.Pointers
	// Unreachable is told why a registry can't be reached, which then no error says: errors end in
	// conditions, and whoever may name registries there would learn what listens where. Nil has
	// errors say it.
	Unreachable func(registry string, err error)
	// Backoff is how often requests that failed for a passing reason are tried again, and when;
	// zero is 3 tries in about 4 seconds.
	Backoff remote.Backoff
	// Jobs is how many layers a call moves at once; zero is 4.
	Jobs int
	// Limits remember which registries asked for a pause. Clients that share them respect each
	// other's; nil is the client's own.
	Limits *wire.RateLimits
	// Clock measures durations, pauses and silence; nil is the real one.
	Clock clock.WithDelayedExecution
}

// Defaults of Options.
const (
	defaultJobs = 4
	firstWait   = time.Second
	waitFactor  = 3
	waitJitter  = 0.1
	tries       = 3
)

// Client talks to registries with one set of credentials. It keeps no connection state of its own,
// no token and no answer: each call sees the registry as it is. It may be used by several
// goroutines.
type Client struct {
	transport http.RoundTripper
	keychain  authn.Keychain
	userAgent string
	plainHTTP []string
	backoff   remote.Backoff
	jobs      int
	clock     clock.WithDelayedExecution
	// mirrors are for what is read alone.
	mirrors mirrors.Table

	unreachable func(registry string, err error)
}

// New returns a client.
func New(options Options) *Client {
	c := &Client{
		transport: options.Transport,
		keychain:  options.Keychain,
		userAgent: cmp.Or(options.UserAgent, "layerwright/"+version.Current().Version),
		plainHTTP: slices.Clone(options.PlainHTTP),
		backoff:   options.Backoff,
		jobs:      cmp.Or(options.Jobs, defaultJobs),
		clock:     options.Clock,

		unreachable: options.Unreachable,
	}
	if c.transport == nil {
		c.transport = remote.DefaultTransport
	}
	if c.keychain == nil {
		c.keychain = authn.NewMultiKeychain()
	}
	if c.backoff == (remote.Backoff{}) {
		c.backoff = remote.Backoff{Duration: firstWait, Factor: waitFactor, Jitter: waitJitter, Steps: tries}
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	limits := options.Limits
	if limits == nil {
		limits = &wire.RateLimits{}
	}
	patient := &wire.Progress{Next: c.transport, Clock: c.clock}
	guarded := &wire.Guard{Next: patient, PlainHTTP: c.plainHTTP, Pointers: options.Pointers}
	c.transport = limits.Wrap(wire.Bounded{Next: guarded}, c.clock)
	return c
}

// metered is a copy of the client whose traffic the meter counts.
func (c *Client) metered(m *wire.Meter) *Client {
	metered := *c
	metered.transport = m.Wrap(c.transport)
	return &metered
}

// options are what each call of go-containerregistry about a repository gets.
func (c *Client) options(ctx context.Context, about name.Repository) []remote.Option {
	return []remote.Option{
		remote.WithContext(ctx),
		remote.WithTransport(c.asking(about)),
		remote.WithAuthFromKeychain(c.keychain),
		remote.WithUserAgent(c.userAgent),
		remote.WithRetryBackoff(c.backoff),
		remote.WithJobs(c.jobs),
	}
}

// asking makes the requests about a repository.
func (c *Client) asking(about name.Repository) *wire.Asking {
	return &wire.Asking{Registry: about.RegistryStr(), Account: c.account(about), Next: c.transport}
}

// account identifies the credentials for a repository; empty for none, or for those that can't be
// read, which whoever logs in finds out.
func (c *Client) account(about name.Repository) string {
	login, err := c.keychain.Resolve(about)
	if err != nil || login == authn.Anonymous {
		return ""
	}
	config, err := login.Authorization()
	if err != nil || *config == (authn.AuthConfig{}) {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{config.Username, config.Password, config.Auth, config.IdentityToken, config.RegistryToken}))
	return string(sum[:])
}

// puller reads from a repository, and logs in once.
func (c *Client) puller(ctx context.Context, from name.Repository) (*remote.Puller, error) {
	return remote.NewPuller(c.options(ctx, from)...)
}

// nameOptions tell go-containerregistry which hosts may be talked to without TLS.
func (c *Client) nameOptions(registry string) []name.Option {
	if wire.MayBePlain(registry, c.plainHTTP) {
		return []name.Option{name.Insecure}
	}
	return nil
}

// reference reads the name of an image: with a tag, with a digest, or with neither, which means the
// tag "latest".
func (c *Client) reference(image string) (name.Reference, error) {
	ref, err := name.ParseReference(image)
	if err == nil {
		ref, err = name.ParseReference(image, c.nameOptions(ref.Context().RegistryStr())...)
	}
	if err != nil {
		return nil, invalid("image", image, err)
	}
	return ref, nil
}

// pinned reads the name of an image that has to have a digest.
func (c *Client) pinned(image string) (name.Digest, error) {
	ref, err := c.reference(image)
	if err != nil {
		return name.Digest{}, err
	}
	digest, ok := ref.(name.Digest)
	if !ok {
		return name.Digest{}, invalid("image", image, errors.New("it has no digest"))
	}
	return digest, nil
}

// repository reads the name of a repository.
func (c *Client) repository(repository string) (name.Repository, error) {
	repo, err := name.NewRepository(repository)
	if err == nil {
		repo, err = name.NewRepository(repository, c.nameOptions(repo.RegistryStr())...)
	}
	if err != nil {
		return name.Repository{}, invalid("repository", repository, err)
	}
	return repo, nil
}

// tag reads a tag of a repository.
func (c *Client) tag(repo name.Repository, tag string) (name.Tag, error) {
	t, err := name.NewTag(repo.String()+":"+tag, append(c.nameOptions(repo.RegistryStr()), name.StrictValidation)...)
	if err == nil && (t.TagStr() != tag || strings.ContainsAny(tag[:1], ".-")) {
		err = errors.New("a tag has letters, digits and \"_\", and behind the first of them also \".\" and \"-\"")
	}
	if err != nil {
		return name.Tag{}, invalid("tag", tag, err)
	}
	return t, nil
}

func invalid(kind, text string, err error) error {
	return fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of %s %q: %s",
		kind, fault.Clean(text), fault.Message(err))) // the library quotes the name, which may be a URL with a password
}

// NoSecret is a keychain without credentials, because no secret is named. It is what would name
// one, such as a field, for messages.
type NoSecret string

// Resolve finds none.
func (NoSecret) Resolve(authn.Resource) (authn.Authenticator, error) { return authn.Anonymous, nil }

// Logins is the keychain of a person, which "docker login" fills and no secret.
type Logins struct{ authn.Keychain }

func (c *Client) reading(doing string, subject fmt.Stringer, target authn.Resource) failure.Call {
	return c.call(doing, subject, target, false)
}

func (c *Client) writing(doing string, subject fmt.Stringer, target authn.Resource) failure.Call {
	return c.call(doing, subject, target, true)
}

func (c *Client) call(doing string, subject fmt.Stringer, target authn.Resource, writes bool) failure.Call {
	login, err := c.keychain.Resolve(target)
	unnamed, _ := c.keychain.(NoSecret)
	_, isPersons := c.keychain.(Logins)
	return failure.Call{
		Doing: doing, Subject: subject.String(), Writes: writes,
		Host: target.RegistryStr(), Anonymous: err == nil && login == authn.Anonymous, Unreachable: c.unreachable,
		Unnamed: string(unnamed), Logins: isPersons,
	}
}
