package cosign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// Options say which registry is used, and how. The zero value is for one that wants no login, over
// plain HTTP.
type Options struct {
	// Environment are variables that it has besides those of the test.
	Environment []string
	// Login is a docker configuration file that logs in there.
	Login []byte
	// CA is the file with the certificate of the registry's authority; empty for the ones that the
	// machine trusts.
	CA string
	// Password opens and encrypts private keys.
	Password string
	// Roots are the root certificates of Fulcio in PEM, which are in the file roots.pem then, and
	// LogKey the public key of Rekor, in rekor.pub. Keys need neither.
	Roots, LogKey []byte
}

// Cosign is the program with a home of its own.
type Cosign struct {
	tb      testing.TB
	program string
	dir     string
	env     []string
}

// New prepares a home that is removed after the test. Before `make tools` a test fails.
func New(tb testing.TB, options Options) *Cosign {
	tb.Helper()
	c := &Cosign{tb: tb, program: find(tb), dir: tb.TempDir()}
	// A key needs no root of certificates, which cosign else asks the internet for.
	c.env = append(os.Environ(), "HOME="+c.dir, "DOCKER_CONFIG="+c.dir, "COSIGN_PASSWORD="+options.Password, "SIGSTORE_ROOT_FILE="+os.DevNull)
	c.env = append(c.env, options.Environment...)
	if options.CA != "" {
		c.env = append(c.env, "SSL_CERT_FILE="+options.CA)
	}
	if len(options.Roots) > 0 {
		c.env = append(c.env, "SIGSTORE_ROOT_FILE="+filepath.Join(c.dir, "roots.pem"), "SIGSTORE_REKOR_PUBLIC_KEY="+filepath.Join(c.dir, "rekor.pub"))
		c.Write("roots.pem", options.Roots)
		c.Write("rekor.pub", options.LogKey)
	}
	if len(options.Login) > 0 {
		c.Write("config.json", options.Login)
	}
	return c
}

func find(tb testing.TB) string {
	tb.Helper()
	bin, err := toolchain.FindHere(tb.Context(), toolchain.Cosign)
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(bin, "cosign")
}

func root(tb testing.TB) string {
	tb.Helper()
	root, err := toolchain.RepositoryRoot(".")
	if err != nil {
		tb.Fatal(err)
	}
	return root
}

// Write puts a file where Run runs, such as a key.
func (c *Cosign) Write(name string, content []byte) {
	c.tb.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), content, 0o600); err != nil {
		c.tb.Fatal(err)
	}
}

// Read reads a file that Run has written.
func (c *Cosign) Read(name string) []byte {
	c.tb.Helper()
	content, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		c.tb.Fatal(err)
	}
	return content
}

// Run runs cosign and returns what it prints. A failure ends the test.
func (c *Cosign) Run(args ...string) string {
	c.tb.Helper()
	out, err := c.Try(c.tb.Context(), args...)
	if err != nil {
		c.tb.Fatal(err)
	}
	return out
}

// Try is Run for what may fail: the error has what cosign says about it.
func (c *Cosign) Try(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cosign %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// documents tell users how to verify.
var documents = []string{"docs/signing.md", "docs/signing-services.md"}

// Documented are the arguments of the command in the documents that begins with some, about another
// image: the last argument of a command there is the image, or the key of a service. It is one with
// a key, which is the file cosign.pub where it is about an image.
func Documented(tb testing.TB, image string, begin ...string) []string {
	tb.Helper()
	return read(tb, image, begin, "--key")
}

// DocumentedKeyless are the arguments of the command there that verifies without a key, about
// another image and another identity.
func DocumentedKeyless(tb testing.TB, image, subject, issuer string, begin ...string) []string {
	tb.Helper()
	args := read(tb, image, begin, subjectFlag)
	for flag, value := range map[string]string{subjectFlag: subject, "--certificate-oidc-issuer": issuer} {
		args[slices.Index(args, flag)+1] = value
	}
	return args
}

// subjectFlag says who is to have signed, where there is no key.
const subjectFlag = "--certificate-identity"

func read(tb testing.TB, image string, begin []string, with string) []string {
	tb.Helper()
	var all strings.Builder
	for _, document := range documents {
		text, err := os.ReadFile(filepath.Join(root(tb), document))
		if err != nil {
			tb.Fatal(err)
		}
		all.Write(text)
	}
	args, err := documented(all.String(), image, begin, with)
	if err != nil {
		tb.Fatal(err)
	}
	return args
}

var errUndocumented = errors.New("the documents have no such command, or more than one")

func documented(text, image string, begin []string, with string) ([]string, error) {
	var found [][]string
	for line := range strings.Lines(text) {
		command, is := strings.CutPrefix(strings.TrimSpace(line), "$ cosign ")
		command, _, _ = strings.Cut(command, " | ") // what people do with its output
		command, _, _ = strings.Cut(command, " > ")
		args := strings.Fields(command)
		if is && len(args) > len(begin) && slices.Equal(args[:len(begin)], begin) && slices.Contains(args, with) {
			found = append(found, args)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("cosign %s: %w", strings.Join(begin, " "), errUndocumented)
	}
	return append(found[0][:len(found[0])-1], image), nil
}
