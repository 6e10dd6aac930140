package machineconfigs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// annotationTrimmed says that the content was left out, and of what IsSameContent compares has its
// hash. It is in memory only.
const annotationTrimmed = "layerwright.io/trimmed-content"

// trimmedHere begins the annotation's value. People may annotate as they like: what does not begin
// with it was written by someone else, and says nothing.
var trimmedHere = rand.Text() + " "

// Trim leaves out of a MachineConfig what is kept in memory for nothing: what kubectl applied last,
// and the content, which is read when a pool is rendered. Of a MachineConfig that a controller made
// the hash stays for IsSameContent. Caches trim what they list twice.
func Trim(mc *mcfgv1.MachineConfig) {
	delete(mc.Annotations, corev1.LastAppliedConfigAnnotation)
	if len(mc.Spec.Config.Raw) == 0 {
		return
	}
	hash := ""
	if IsRendered(mc) || metav1.GetControllerOf(mc) != nil {
		hash = contentHash(mc.Spec.Config.Raw)
	}
	metav1.SetMetaDataAnnotation(&mc.ObjectMeta, annotationTrimmed, trimmedHere+hash)
	mc.Spec.Config.Raw = nil
}

// isTrimmed reports whether the content was left out.
func isTrimmed(mc *mcfgv1.MachineConfig) bool {
	return strings.HasPrefix(mc.Annotations[annotationTrimmed], trimmedHere) && len(mc.Spec.Config.Raw) == 0
}

// Untrim takes away what Trim has added, for an object that is written with all of its content.
func Untrim(mc *mcfgv1.MachineConfig) { delete(mc.Annotations, annotationTrimmed) }

// IsSameContent reports whether spec.config of two MachineConfigs says the same, also where it was
// left out. The API server writes JSON in its own order.
func IsSameContent(a, b *mcfgv1.MachineConfig) bool {
	first, second := hashOf(a), hashOf(b)
	return first != "" && first == second
}

func hashOf(mc *mcfgv1.MachineConfig) string {
	if isTrimmed(mc) {
		return strings.TrimPrefix(mc.Annotations[annotationTrimmed], trimmedHere)
	}
	return contentHash(mc.Spec.Config.Raw)
}

// contentHash is the same for equal values; empty of what is no JSON.
func contentHash(raw []byte) string {
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
