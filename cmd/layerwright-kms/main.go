// Command layerwright-kms signs with keys that a key management service keeps. It is sigstore's
// plug-in for the services whose clients sigstore has, and goes by the names sigstore-kms-awskms,
// sigstore-kms-azurekms, sigstore-kms-gcpkms, sigstore-kms-hashivault and sigstore-kms-openbao:
// links to one program. Whoever signs runs it for each request, so that the clients of all these
// services are in no other program.
//
// Rule: it knows the protocol, and nothing of images. What it may do in a service comes from its
// environment, as the service's own client reads it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/kms"
	"github.com/sigstore/sigstore/pkg/signature/kms/aws"
	"github.com/sigstore/sigstore/pkg/signature/kms/azure"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/common"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/encoding"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/handler"
	"github.com/sigstore/sigstore/pkg/signature/kms/gcp"
	"github.com/sigstore/sigstore/pkg/signature/kms/hashivault"
)

// Exit codes. Sigstore does not look at them; Layerwright does, at those that are not exitFailed.
const (
	exitFailed = 1
	// exitUsage means that the program was not run as a plug-in.
	exitUsage = 2
	// exitReference means that no key can be called what was asked for, whatever the service may
	// answer: EX_USAGE of sysexits.h.
	exitReference = 64
)

// services tell by scheme which names keys can have.
var services = map[string]func(reference string) error{
	aws.ReferenceScheme:          aws.ValidReference,
	azure.ReferenceScheme:        azure.ValidReference,
	gcp.ReferenceScheme:          gcp.ValidReference,
	hashivault.ReferenceScheme:   hashivault.ValidReference,
	hashivault.AlternativeScheme: hashivault.ValidReference,
}

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

// run answers the one request that the arguments are, and gives the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	name, is := strings.CutPrefix(filepath.Base(args[0]), cliplugin.PluginBinaryPrefix)
	valid, known := services[name+"://"]
	if !is || !known || len(args) != 3 || args[1] != common.ProtocolVersion {
		fmt.Fprintf(stderr, "%s is run by programs that sign, as %s<service> %s <request>; it is installed under these names: awskms, azurekms, gcpkms, hashivault, openbao\n",
			args[0], cliplugin.PluginBinaryPrefix, common.ProtocolVersion)
		return exitUsage
	}
	request, err := handler.GetPluginArgs(args)
	if err == nil && (request.InitOptions == nil || request.MethodArgs == nil) {
		err = errors.New("the request has no options, or no method")
	}
	if err != nil {
		return answer(stdout, exitFailed, fmt.Errorf("reading the request: %w", err))
	}
	reference := name + "://" + request.InitOptions.KeyResourceID // the protocol leaves the scheme out
	if err := valid(reference); err != nil {
		return answer(stdout, exitReference, err)
	}
	ctx, cancel := withDeadline(request.InitOptions)
	defer cancel()
	key, err := kms.Get(ctx, reference, request.InitOptions.HashFunc, rpcOptions(request.InitOptions)...)
	if err != nil {
		return answer(stdout, exitFailed, err)
	}
	response, err := handler.Dispatch(stdout, stdin, request, key)
	if err != nil || response.ErrorMessage != "" {
		return exitFailed
	}
	return 0
}

// withDeadline is the time that a request has.
func withDeadline(o *common.InitOptions) (context.Context, context.CancelFunc) {
	if o.CtxDeadline == nil {
		return context.Background(), func() {}
	}
	return context.WithDeadline(context.Background(), *o.CtxDeadline)
}

// rpcOptions are those that a request has.
func rpcOptions(o *common.InitOptions) []signature.RPCOption {
	if o.RPCOptions == nil {
		return nil
	}
	return encoding.UnpackRPCOptions(o.RPCOptions)
}

// answer says what went wrong, as the protocol wants it.
func answer(stdout io.Writer, code int, err error) int {
	if handler.WriteErrorResponse(stdout, err) != nil {
		return exitFailed
	}
	return code
}
