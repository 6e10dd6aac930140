package sign

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"

	openapi "github.com/go-openapi/runtime/client"
	"github.com/go-openapi/strfmt"
	"github.com/sigstore/cosign/v2/pkg/cosign/bundle"
	"github.com/sigstore/rekor/pkg/generated/client"
	"github.com/sigstore/rekor/pkg/generated/models"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
)

// entriesPath is where Rekor has its entries.
const entriesPath = "/api/v1/log/entries"

// publicKeyPath is where it has its public key, for people.
const publicKeyPath = "/api/v1/log/publicKey"

// rekor is a transparency log. It is the transport of the log's own client too, which knows some
// answers in one form alone and makes one kind of error of all others.
type rekor struct{ service }

// upload is how cosign adds a record.
type upload func(context.Context, *client.Rekor) (*models.LogEntryAnon, error)

// add adds a record, and gives the log's promise as the text of an annotation: empty where the
// answer has none. What the log answers is not verified here.
func (l rekor) add(ctx context.Context, record upload) (string, error) {
	at, err := url.Parse(l.url)
	if err != nil {
		return "", fmt.Errorf("the transparency log: %w", err)
	}
	transport := openapi.NewWithClient(at.Host, at.Path, []string{at.Scheme}, &http.Client{Transport: l})
	transport.Debug = false // an environment with DEBUG would have it write to standard error
	entry, err := record(ctx, client.New(transport, strfmt.Default))
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		return "", failed.Err
	}
	if err != nil {
		return "", fmt.Errorf("writing to the transparency log %q: its answer is not one entry: %w", l.url, err)
	}
	if entry.Validate(strfmt.Default) != nil || entry.Verification == nil {
		return "", nil //nolint:nilerr // what is no entry has no promise
	}
	text, err := json.Marshal(bundle.EntryToBundle(entry))
	return string(text), err
}

// RoundTrip asks the log, and gives an entry or an error that has its class. A record that is there
// already is taken from there: cosign would believe a key that the log itself gives, and say so on
// standard error.
func (l rekor) RoundTrip(request *http.Request) (_ *http.Response, err error) {
	defer func() { err = errors.Join(err, request.Body.Close()) }()
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	a, err := l.call(request.Context(), http.MethodPost, entriesPath, json.RawMessage(body))
	if err != nil {
		return nil, fmt.Errorf("writing to the transparency log %q: %w", l.url, err)
	}
	if a.code == http.StatusConflict {
		if a, err = l.existing(request.Context(), path.Base(a.location)); err != nil {
			return nil, err
		}
	}
	switch {
	case a.isTransient():
		return nil, fmt.Errorf("writing to the transparency log %q: it answers %s", l.url, a.text())
	case a.code != http.StatusCreated && a.code != http.StatusOK:
		return nil, fault.NewTerminal(mcfgv1alpha1.ReasonSigningFailed, fmt.Errorf("the transparency log %q does not take the signature: %s", l.url, a.text()))
	}
	return &http.Response{
		StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(a.body)), Request: request,
	}, nil
}

// existing is the answer that has an entry.
func (l rekor) existing(ctx context.Context, id string) (answer, error) {
	if _, err := hex.DecodeString(id); err != nil {
		return answer{}, fmt.Errorf("writing to the transparency log %q: it has the entry, and did not answer where", l.url)
	}
	a, err := l.call(ctx, http.MethodGet, entriesPath+"/"+id, nil)
	if err != nil {
		return answer{}, fmt.Errorf("reading the entry %q of the transparency log %q: %w", id, l.url, err)
	}
	// What is queued exists, and has no place in the log yet.
	if a.code == http.StatusNotFound {
		return answer{}, fmt.Errorf("reading the entry %q of the transparency log %q: it exists and is not there yet: %s", id, l.url, a.text())
	}
	return a, nil
}
