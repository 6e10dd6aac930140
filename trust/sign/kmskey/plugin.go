package kmskey

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/common"

	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/trust/sign"
)

const (
	// kmsFlag is what errors call the place where the URI is from.
	kmsFlag = "--signing-kms-key"
	// pluginPrefix is how the programs' names begin.
	pluginPrefix = "sigstore-kms-"
	// exitReference is the exit code with which layerwright-kms says that no key can be called so.
	// Plug-ins of others have no such codes.
	exitReference = 64
	// pluginEnds is how long a program that was killed may keep its output open.
	pluginEnds = time.Second
)

// kmsURI is a service and what it calls a key. The service is part of a program's name.
var kmsURI = regexp.MustCompile(`^([a-z][a-z0-9-]*)://(.+)$`)

// CheckURI tells why a URI can't be that of a key; nil where it can, as far as that is known
// without the service's client.
func CheckURI(uri string) error {
	if !kmsURI.MatchString(uri) {
		return fmt.Errorf("%s: %q is no URI of a key, such as awskms:///alias/os or hashivault://os", kmsFlag, uri)
	}
	return nil
}

// plugin is a program that speaks for a key management service: sigstore's protocol, version 1.
// Sigstore's own client for it lets the program write into our log, reads without a limit, and
// waits for ever.
type plugin struct {
	uri, program, reference string
	timeout                 time.Duration
	environment             func() []string
	lookPath                func(string) (string, error)
	// slots has room for the processes that may run at once.
	slots chan struct{}
}

// ask makes one request. The errors are Waiting.
func (p plugin) ask(ctx context.Context, method *common.MethodArgs, message []byte) (*common.PluginResp, error) {
	if err := CheckURI(p.uri); err != nil {
		return nil, sign.InvalidKey(err)
	}
	program, err := p.lookPath(p.program)
	if err != nil {
		return nil, sign.InvalidKey(p.about(fmt.Errorf("there is no program %q in the PATH: take Layerwright's image, which has it for awskms, azurekms, gcpkms, hashivault and openbao, "+
			"or add the service's plug-in to yours", p.program)))
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return nil, p.failed(ctx, ctx.Err(), nil)
	}
	deadline, _ := ctx.Deadline()
	request, err := json.Marshal(common.PluginArgs{MethodArgs: method, InitOptions: &common.InitOptions{
		CtxDeadline: &deadline, ProtocolVersion: common.ProtocolVersion, KeyResourceID: p.reference, HashFunc: sign.Hash,
		RPCOptions: &common.RPCOptions{CtxDeadline: &deadline},
	}})
	if err != nil {
		return nil, err
	}
	environment := p.environment()
	stdout, stderr := &limited{left: sign.MaxAnswer}, &limited{left: sign.MaxQuoted}
	cmd := exec.CommandContext(ctx, program, common.ProtocolVersion, string(request)) //nolint:gosec // the administrator names it
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env, cmd.WaitDelay = bytes.NewReader(message), stdout, stderr, environment, pluginEnds
	ran := cmd.Run()
	var answer common.PluginResp
	if ctx.Err() != nil || json.Unmarshal(stdout.kept, &answer) != nil {
		return nil, p.failed(ctx, ran, hideSecrets(stderr.kept, environment))
	}
	if answer.ErrorMessage == "" {
		return &answer, nil
	}
	why := errors.New(string(hideSecrets([]byte(answer.ErrorMessage), environment)))
	if exit := (*exec.ExitError)(nil); errors.As(ran, &exit) && exit.ExitCode() == exitReference {
		return nil, sign.InvalidKey(p.about(why))
	}
	return nil, sign.WaitForKey(p.about(fmt.Errorf("%w; see that the controller's pod reaches the service, and has credentials that may use the key", why)))
}

// failed means that a program gave no answer.
func (p plugin) failed(ctx context.Context, ran error, said []byte) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return sign.WaitForKey(p.about(fmt.Errorf("the service has not answered within %s; see that the controller's pod reaches it", p.timeout)))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if ran == nil {
		return p.unexpected("no valid answer")
	}
	return sign.WaitForKey(p.about(fmt.Errorf("running %s: %w: %s", p.program, ran, bytes.TrimSpace(said))))
}

// unexpected means that a program does not keep to the protocol.
func (p plugin) unexpected(what string) error {
	return sign.WaitForKey(p.about(fmt.Errorf("the program %s gives %s; it has to be a plug-in for version %s of sigstore's protocol", p.program, what, common.ProtocolVersion)))
}

// about says which key an error is about, and is without what is secret in URLs.
func (p plugin) about(err error) error {
	return fmt.Errorf("the key %q of %s: %w", p.uri, kmsFlag, clean{err})
}

// clean is an error whose text has been made fit to be told, in one line: services' clients tell
// theirs in several.
type clean struct{ err error }

// Error is the text.
func (c clean) Error() string { return fault.Clean(strings.Join(strings.Fields(c.err.Error()), " ")) }

// Unwrap is the error.
func (c clean) Unwrap() error { return c.err }

// hideSecrets takes out of a text what variables of the environment have that are secret by their
// names, such as tokens. Services' clients have no reason to tell them, and that is not ours to
// rely on.
func hideSecrets(text []byte, environment []string) []byte {
	for _, variable := range environment {
		name, value, _ := strings.Cut(variable, "=")
		if value = strings.TrimSpace(value); len(value) >= minSecret && isSecret(name) {
			text = bytes.ReplaceAll(text, []byte(value), []byte("<"+name+">"))
		}
	}
	return text
}

// minSecret is the length of the shortest value that is hidden: shorter ones are part of ordinary
// words.
const minSecret = 6

// isSecret reports whether a variable has a secret by its name. Those that name a file with one are
// needed to understand an error.
func isSecret(name string) bool {
	name = strings.ToUpper(name)
	if strings.HasSuffix(name, "_FILE") || strings.HasSuffix(name, "_PATH") {
		return false
	}
	for _, word := range []string{"TOKEN", "SECRET", "PASSWORD"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// limited keeps the beginning of what is written to it.
type limited struct {
	kept []byte
	left int
}

// Write keeps what there is room for, and takes the rest too: the program is to go on.
func (l *limited) Write(content []byte) (int, error) {
	keep := content[:min(len(content), l.left)]
	l.left -= len(keep)
	l.kept = append(l.kept, keep...)
	return len(content), nil
}
