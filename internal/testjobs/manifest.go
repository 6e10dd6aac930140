package testjobs

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// DefaultKey is the key of the ConfigMap where spec.verification.job names none.
const DefaultKey = "job.yaml"

// Parse reads the manifest of a Job. It refuses what the API server would drop in silence: unknown
// fields and fields that are there twice, and what no one can mean: several documents, or another
// kind. Errors name the line or the field.
func Parse(manifest string) (*batchv1.Job, error) {
	documents, err := countDocuments(manifest)
	if err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	switch {
	case documents == 0:
		return nil, errors.New("the manifest is empty: write a Job of batch/v1")
	case documents > 1:
		return nil, fmt.Errorf("the manifest has %d documents: write one Job, and make what it needs besides yourself", documents)
	}
	scheme := runtime.NewScheme()
	if err := batchv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	object, kind, err := decoder.Decode([]byte(manifest), nil, nil)
	switch {
	case runtime.IsMissingKind(err), runtime.IsMissingVersion(err):
		return nil, errors.New("the manifest has no apiVersion or no kind: write `apiVersion: batch/v1` and `kind: Job`")
	case runtime.IsNotRegisteredError(err):
		return nil, fmt.Errorf("the manifest is of a %s of %s: write a Job of batch/v1", kind.Kind, kind.GroupVersion())
	case err != nil:
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	job, isJob := object.(*batchv1.Job)
	if !isJob {
		return nil, fmt.Errorf("the manifest is of a %s: write a Job", kind.Kind)
	}
	return job, nil
}

// countDocuments counts those that have more than comments.
func countDocuments(manifest string) (int, error) {
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(manifest)))
	for n := 0; ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		for line := range bytes.Lines(document) {
			if text := bytes.TrimSpace(line); len(text) > 0 && text[0] != '#' && !bytes.Equal(text, []byte("---")) {
				n++
				break
			}
		}
	}
}

// Hash identifies a test: a manifest, and the time that it may take.
func Hash(manifest string, timeout time.Duration) string {
	const enough = 16
	sum := sha256.Sum256([]byte(manifest + "\x00" + timeout.String()))
	return hex.EncodeToString(sum[:])[:enough]
}
