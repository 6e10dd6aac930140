package machineconfigs

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs/dataurl"
)

// encodeIgnition gives the JSON that encoding/json makes of a configuration. Contents, which are
// nearly all of it, are put into the result directly.
func encodeIgnition(cfg types.Config) ([]byte, error) {
	var contents []string
	cfg = cloneResources(cfg)
	nothing := ""
	eachResource(&cfg, func(r *types.Resource) {
		if r.Source == nil {
			return
		}
		if !isPlainContent(*r.Source) {
			contents = append(contents, "")
			return
		}
		contents = append(contents, *r.Source)
		r.Source = &nothing
	})
	frame, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return fill(frame, contents)
}

// fill puts contents behind the keys "source", in order. In JSON those bytes are nothing but such a
// key: a quote in a text is escaped.
func fill(frame []byte, contents []string) ([]byte, error) {
	key := []byte(`"source":"`)
	size := len(frame)
	for _, content := range contents {
		size += len(content)
	}
	filled := make([]byte, 0, size)
	for _, content := range contents {
		at := bytes.Index(frame, key)
		if at < 0 {
			return nil, errors.New("writing JSON: a source is missing")
		}
		at += len(key)
		filled = append(filled, frame[:at]...)
		filled = append(filled, content...)
		frame = frame[at:]
	}
	return append(filled, frame...), nil
}

// isPlainContent reports whether a source has to be put into JSON as it is. Those in base64 have
// been decoded when they were read, so their data has no other characters than base64's.
func isPlainContent(source string) bool {
	url, ok := dataurl.Split(source)
	if ok && url.Base64 {
		return isPlainJSON(source[:len(source)-len(url.Data)])
	}
	return isPlainJSON(source)
}

// isPlainJSON reports whether encoding/json writes a text as it is.
func isPlainJSON(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// cloneResources copies as much of a configuration as eachResource leads to.
func cloneResources(cfg types.Config) types.Config {
	cfg.Ignition.Config.Merge = slices.Clone(cfg.Ignition.Config.Merge)
	cfg.Ignition.Security.TLS.CertificateAuthorities = slices.Clone(cfg.Ignition.Security.TLS.CertificateAuthorities)
	cfg.Storage.Files = slices.Clone(cfg.Storage.Files)
	for i := range cfg.Storage.Files {
		cfg.Storage.Files[i].Append = slices.Clone(cfg.Storage.Files[i].Append)
	}
	cfg.Storage.Luks = slices.Clone(cfg.Storage.Luks)
	return cfg
}

// encodeNodeOnly gives the value of the annotation; empty where nothing stays out of images.
func encodeNodeOnly(n *NodeOnly) (string, error) {
	if n.IsEmpty() {
		return "", nil
	}
	list, err := json.Marshal(n)
	if err != nil {
		return "", invalid("", annotationPath(mcfgv1.AnnotationNodeOnlyContent), err)
	}
	if len(list) > maxNodeOnly {
		return "", invalid("", annotationPath(mcfgv1.AnnotationNodeOnlyContent), fmt.Errorf("the names of what stays out of images take %d KiB, "+
			"and there is room for %d KiB: mark fewer or smaller MachineConfigs with %s", len(list)>>10, maxNodeOnly>>10, mcfgv1.AnnotationNodeOnly))
	}
	return string(list), nil
}

// nameVersion goes into every hash. Another one renames every rendered MachineConfig, which builds
// every image anew.
const nameVersion = "layerwright rendered MachineConfig 1"

// nameHashSize is how many bytes of the hash a name has: 32 hexadecimal digits, as tools expect
// them.
const nameHashSize = 16

// renderedName is rendered-<pool>-<hash>. The hash is over everything that the rendered
// MachineConfig means: its spec and what of it stays out of images. Each part is written with its
// length before it, so that no two contents are written alike.
func renderedName(pool string, spec *mcfgv1.MachineConfigSpec, nodeOnly string) (string, error) {
	beside := *spec
	beside.Config.Raw = nil
	fields, err := json.Marshal(&beside)
	if err != nil {
		return "", fmt.Errorf("writing JSON: %w", err)
	}
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(nameVersion), []byte(pool), fields, spec.Config.Raw, []byte(nodeOnly)} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		sum.Write(length[:])
		sum.Write(part)
	}
	return renderedPrefix + pool + "-" + hex.EncodeToString(sum.Sum(nil)[:nameHashSize]), nil
}
