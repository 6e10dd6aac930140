package backend

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
)

// Results of a PipelineRun that builds. Tekton Chains looks for the first three.
const (
	// ResultURL is the image by its tag, and ResultDigest its digest: that of the index, of several
	// architectures.
	ResultURL    = "IMAGE_URL"
	ResultDigest = "IMAGE_DIGEST"
	// ResultImages are the images of all architectures by digest, in their order, with commas
	// between them.
	ResultImages = "IMAGES"
	// ResultSize is how many bytes their layers and configs have in the registry.
	ResultSize = "IMAGE_SIZE"
	// ResultStarted is when the run began, in seconds of Unix time, and ResultDuration how many
	// seconds it took to push everything.
	ResultStarted  = "STARTED"
	ResultDuration = "BUILD_SECONDS"
)

// tektonResult is an entry of the list that Tekton keeps in a container's termination message.
type tektonResult struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Type  int    `json:"type"`
}

const (
	// tektonKey is that of a Report. No result of a Task can have it, so that no file in
	// /tekton/results becomes one.
	tektonKey = "layerwright.io/report"
	// tektonKept is a type that is none of Tekton's: it keeps such an entry in the status of the
	// TaskRun, where it is still known when the pod is gone, and makes no result of it.
	tektonKept = 10
	// maxTektonReport is what the kubelet keeps for one of six containers, preflight, the four
	// steps and one of Tekton's, less what that adds.
	maxTektonReport = 12<<10/6 - 256
	// compressedPrefix begins a list that Tekton was told to compress, and maxCompressed is how
	// long one may be.
	compressedPrefix = "tknz:"
	maxCompressed    = 64 << 10
)

// EncodeForTekton writes the report as Encode does, as an entry of Tekton's list.
func (r *Report) EncodeForTekton() ([]byte, error) {
	return r.encode(maxTektonReport, func(text []byte) ([]byte, error) {
		return json.Marshal([]tektonResult{{Key: tektonKey, Value: string(text), Type: tektonKept}})
	})
}

// FromTekton is the report in Tekton's list, as ReadReport reads it; a text that is no such list,
// or has none, is empty.
func FromTekton(message string) string {
	if packed, isPacked := strings.CutPrefix(message, compressedPrefix); isPacked {
		reader := flate.NewReader(base64.NewDecoder(base64.RawStdEncoding, strings.NewReader(packed)))
		text, err := io.ReadAll(io.LimitReader(reader, maxCompressed))
		if err != nil {
			return ""
		}
		message = string(text)
	}
	var entries []tektonResult
	decoder := json.NewDecoder(bytes.NewReader([]byte(message)))
	if err := decoder.Decode(&entries); err != nil {
		return ""
	}
	for _, entry := range entries {
		if entry.Key == tektonKey {
			return entry.Value
		}
	}
	return ""
}
