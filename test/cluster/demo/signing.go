package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/layerwright/layerwright/images/provenance"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
	"github.com/layerwright/layerwright/trust/sign"
)

// keyFile is where the public key goes.
const keyFile = "cosign.pub"

// tamperedTag is that of an image which someone changed.
const tamperedTag = "tampered"

// signedImage verifies the image as anybody can, and one that someone changed.
func (s *story) signedImage(ctx context.Context) error {
	s.told++
	s.Printer.Note("\n%d. Who made it: the image is signed, and no other passes", s.told)
	key := filepath.Join(s.dir, keyFile)
	secret, err := s.clients.CoreV1().Secrets(stack.Namespace).Get(ctx, names.SigningKey, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the public key: %w", err)
	}
	if err := files.Write(key, secret.Data[sign.SecretPublicKey], 0o600); err != nil {
		return err
	}
	s.Printer.Note("  The key was made with the first image. Its private half never leaves the secret; the public half:")
	s.Printer.Note(`  $ kubectl -n %s get secret %s -o jsonpath='{.data.cosign\.pub}' | base64 -d > %s`, stack.Namespace, names.SigningKey, s.short(key))
	program, why := s.cosign(ctx)
	if program == "" {
		s.Printer.Note("  %s", why)
		for _, what := range []string{"verify", "verify-attestation --type slsaprovenance1"} {
			s.Printer.Note("  $ cosign %s", s.shown(verifying(what, key, s.last)))
		}
		return nil
	}
	if err := s.verify(ctx, program, key); err != nil {
		return err
	}
	return s.refuseTampered(ctx, program, key)
}

// cosign is the program, or why there is none. As root it is built, like the cluster's own.
func (s *story) cosign(ctx context.Context) (program, why string) {
	find := s.Stack.FindTools
	if s.HasNodes {
		find = func(ctx context.Context, set toolchain.Set) (string, error) {
			return s.Stack.EnsureTools(ctx, set, s.Printer)
		}
	}
	bin, err := find(ctx, toolchain.Cosign)
	if err != nil {
		return "", fmt.Sprintf("It is verified with cosign, which is not here (%v):", err)
	}
	return filepath.Join(bin, "cosign"), ""
}

// verifying are the arguments that verify something of an image; docs/signing.md has the same.
func verifying(what, key, image string) []string {
	return append(strings.Fields(what), "--key", key, "--private-infrastructure", "--registry-cacert", authorityVariable, image)
}

// authorityVariable is what people are shown in place of a path.
const authorityVariable = "$" + stack.AuthorityVariable

func (s *story) shown(args []string) string {
	text := make([]string, len(args))
	for i, arg := range args {
		text[i] = s.short(arg)
	}
	return strings.Join(text, " ")
}

// verify shows what cosign says of the image's signature, and of what is stated about its making.
func (s *story) verify(ctx context.Context, program, key string) error {
	args := verifying("verify", key, s.last)
	s.Printer.Note("  $ cosign %s", s.shown(args))
	said, err := s.run(ctx, program, args)
	if err != nil {
		return err
	}
	s.Printer.Note("  accepted    %s", strings.Join(said.checks(), "; "))
	args = verifying("verify-attestation --type slsaprovenance1", key, s.last)
	s.Printer.Note("\n  $ cosign %s", s.shown(args))
	if said, err = s.run(ctx, program, args); err != nil {
		return err
	}
	stated, err := said.provenance()
	if err != nil {
		return err
	}
	s.Printer.Note("  stated      by %s, about build %s, made of", stated.RunDetails.Builder.ID, stated.RunDetails.Metadata.InvocationID)
	for _, one := range stated.BuildDefinition.ResolvedDependencies {
		s.Printer.Note("                %-44s sha256:%.12s", one.Name, one.Digest["sha256"])
	}
	return nil
}

// refuseTampered pushes a copy of the image with a layer more, as whoever may push can, and shows
// what becomes of it.
func (s *story) refuseTampered(ctx context.Context, program, key string) error {
	image, err := s.images.image(ctx, s.last)
	if err != nil {
		return err
	}
	evil, err := mutate.AppendLayers(image, static.NewLayer([]byte("evil"), types.OCIUncompressedLayer))
	if err != nil {
		return fmt.Errorf("changing a copy of %s: %w", s.last, err)
	}
	digest, err := evil.Digest()
	if err != nil {
		return err
	}
	repository, err := name.NewRepository(s.repository)
	if err != nil {
		return err
	}
	if err := remote.Write(repository.Tag(tamperedTag), evil, s.pusher(ctx)...); err != nil {
		return fmt.Errorf("pushing a changed copy: %w", err)
	}
	copied := repository.Digest(digest.String())
	defer func() { _ = remote.Delete(copied, s.pusher(context.WithoutCancel(ctx))...) }()
	s.Printer.Note("\n  A user who may push adds a layer to a copy, in the same repository, with the tag %s:", tamperedTag)
	args := verifying("verify", key, copied.String())
	s.Printer.Note("  $ cosign %s", s.shown(args))
	_, err = s.run(ctx, program, args)
	if refused := (*refusedError)(nil); !errors.As(err, &refused) {
		return fmt.Errorf("cosign has not refused the copy %s, which has no valid signature: %w", copied, err)
	}
	s.Printer.Note("  refused     %s", firstLine(err.Error()))
	s.Printer.Note("  Nodes that insist on it refuse it likewise: docs/signing.md has the flag. The copy is removed.")
	return nil
}

// refusedError means that cosign has ended with an error, and what it said.
type refusedError struct{ said string }

func (e *refusedError) Error() string { return e.said }

// answer is what cosign prints: for programs, and for people.
type answer struct{ out, err string }

// run runs cosign.
func (s *story) run(ctx context.Context, program string, args []string) (answer, error) {
	expanded := make([]string, len(args))
	for i, arg := range args {
		expanded[i] = strings.Replace(arg, authorityVariable, s.Stack.Authority(), 1)
	}
	cmd := exec.CommandContext(ctx, program, expanded...)
	// A key needs no root of certificates, which cosign else asks the internet for.
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+s.Stack.DockerConfig("pull"), "SIGSTORE_ROOT_FILE="+os.DevNull)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return answer{}, &refusedError{strings.TrimSpace(stderr.String())}
	}
	return answer{stdout.String(), stderr.String()}, err
}

// checks are what cosign says that it has checked.
func (a answer) checks() (checks []string) {
	for line := range strings.Lines(a.err) {
		if check, is := strings.CutPrefix(strings.TrimSpace(line), "- "); is {
			checks = append(checks, check)
		}
	}
	return checks
}

// provenance is what the statement that cosign prints says.
func (a answer) provenance() (p provenance.Predicate, err error) {
	var envelope struct {
		Payload []byte `json:"payload"`
	}
	if err := json.NewDecoder(strings.NewReader(a.out)).Decode(&envelope); err != nil {
		return p, fmt.Errorf("reading what cosign prints: %w", err)
	}
	statement := struct {
		Predicate *provenance.Predicate `json:"predicate"`
	}{&p}
	if err := json.Unmarshal(envelope.Payload, &statement); err != nil {
		return p, fmt.Errorf("reading the statement that cosign prints: %w", err)
	}
	return p, nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
