package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// change is what is done to an image: nothing in it depends on the time or on chance.
type change struct {
	labels, annotations map[string]string
	// created is when the image is said to have been made; zero keeps what the content says.
	created time.Time
	// layer is the new configuration layer, nil for none.
	layer v1.Layer
}

// stripped is the content without the configuration layer that an earlier Append put on top of it,
// and whether there was one.
func (c *content) stripped() (*content, bool, error) {
	entries, err := c.history()
	if err != nil {
		return nil, false, err
	}
	last := len(c.layers) - 1
	if last < 0 || !entries.marks(c.config.RootFS.DiffIDs[last]) {
		return c, false, nil
	}
	top := entries.top()
	below := *c
	below.layers = c.layers[:last]
	config, err := c.rewriteConfig(configEdit{
		diffIDs: c.config.RootFS.DiffIDs[:last],
		history: slices.Delete(slices.Clone(entries), top, top+1),
	})
	if err != nil {
		return nil, false, err
	}
	manifest := c.manifest.DeepCopy()
	manifest.Layers = append([]v1.Descriptor{}, manifest.Layers[:last]...)
	if err := below.set(manifest, config); err != nil {
		return nil, false, err
	}
	return &below, true, nil
}

// set makes the content one of another manifest and config; the manifest gets the config's digest.
func (c *content) set(manifest *v1.Manifest, config []byte) (err error) {
	if manifest.Config, err = describeConfig(manifest.Config.MediaType, config); err != nil {
		return err
	}
	if c.raw, err = json.Marshal(manifest); err != nil {
		return fmt.Errorf("writing a manifest: %w", err)
	}
	c.manifest, c.rawConfig = manifest, config
	c.config, err = v1.ParseConfigFile(bytes.NewReader(config))
	return err
}

func describeConfig(mediaType types.MediaType, config []byte) (v1.Descriptor, error) {
	digest, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("hashing a config: %w", err)
	}
	return v1.Descriptor{MediaType: mediaType, Digest: digest, Size: size}, nil
}

// changed is the image with the change made to it. The content must be stripped.
func (c *content) changed(ch change) (*image, error) {
	fields, err := c.fields()
	if err != nil {
		return nil, err
	}
	edit := configEdit{diffIDs: c.config.RootFS.DiffIDs, labels: ch.labels, created: fields[configCreated]}
	if string(edit.created) == "null" {
		edit.created = nil
	}
	if !ch.created.IsZero() {
		edit.created = quote(ch.created.UTC().Truncate(time.Second).Format(time.RFC3339))
	}
	entries, err := c.history()
	if err != nil {
		return nil, err
	}
	edit.history = entries.aligned(len(c.layers), edit.created)
	manifest := &v1.Manifest{
		SchemaVersion: 2, //nolint:mnd // the only one with layers
		MediaType:     c.mediaType,
		Config:        c.manifest.Config,
		Layers:        append([]v1.Descriptor{}, c.manifest.Layers...),
		Annotations:   annotations(c.mediaType, c.manifest.Annotations, ch.annotations),
	}
	layers := slices.Clone(c.layers)
	if ch.layer != nil {
		added, diffID, err := c.describeLayer(ch.layer)
		if err != nil {
			return nil, err
		}
		manifest.Layers, layers = append(manifest.Layers, added), append(layers, ch.layer)
		edit.diffIDs = append(slices.Clone(edit.diffIDs), diffID)
		edit.history = append(edit.history, entry(edit.created, LayerCreatedBy, diffID.String()))
	}
	config, err := c.rewriteConfig(edit)
	if err != nil {
		return nil, err
	}
	final := content{mediaType: c.mediaType, layers: layers}
	if err := final.set(manifest, config); err != nil {
		return nil, err
	}
	return final.image(), nil
}

// describeLayer is what the manifest says about the configuration layer.
func (c *content) describeLayer(layer v1.Layer) (desc v1.Descriptor, diffID v1.Hash, err error) {
	if desc.MediaType, err = layer.MediaType(); err != nil {
		return desc, diffID, err
	}
	if desc.Size, err = layer.Size(); err != nil {
		return desc, diffID, err
	}
	if desc.Digest, err = layer.Digest(); err != nil {
		return desc, diffID, err
	}
	desc.Annotations = annotations(c.mediaType, nil, map[string]string{mcfgv1.ImageAnnotationLayer: mcfgv1.ImageLayerConfiguration})
	diffID, err = layer.DiffID()
	return desc, diffID, err
}

// annotations joins ours to what is there; Docker's formats have none.
func annotations(mediaType types.MediaType, there, ours map[string]string) map[string]string {
	if mediaType != types.OCIManifestSchema1 && mediaType != types.OCIImageIndex {
		return nil
	}
	joined := map[string]string{}
	maps.Copy(joined, there)
	maps.Copy(joined, ours)
	if len(joined) == 0 {
		return nil
	}
	return joined
}

// configEdit is what changes in a config. All other fields stay, also those that no one here knows.
type configEdit struct {
	diffIDs []v1.Hash
	history history
	labels  map[string]string
	created json.RawMessage // empty leaves it
}

// rewriteConfig writes the config anew, its fields in alphabetical order.
func (c *content) rewriteConfig(edit configEdit) ([]byte, error) {
	fields, err := c.fields()
	if err != nil {
		return nil, err
	}
	if len(edit.created) > 0 {
		fields[configCreated] = edit.created
	}
	if fields[configRootFS], err = json.Marshal(v1.RootFS{Type: "layers", DiffIDs: append([]v1.Hash{}, edit.diffIDs...)}); err != nil {
		return nil, fmt.Errorf("writing a config: %w", err)
	}
	delete(fields, configHistory)
	if len(edit.history) > 0 {
		if fields[configHistory], err = json.Marshal(edit.history); err != nil {
			return nil, fmt.Errorf("writing a config: %w", err)
		}
	}
	if len(edit.labels) > 0 {
		if fields[configRunning], err = c.relabelled(fields[configRunning], edit.labels); err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}

// relabelled is the part of the config that containers run with, with more labels.
func (c *content) relabelled(running json.RawMessage, more map[string]string) (json.RawMessage, error) {
	fields, err := object(running, configLabels)
	if err != nil {
		return nil, c.refuse("its config can't be read: %v", err)
	}
	labels := map[string]string{}
	maps.Copy(labels, c.config.Config.Labels)
	maps.Copy(labels, more)
	if fields[configLabels], err = json.Marshal(labels); err != nil {
		return nil, fmt.Errorf("writing labels: %w", err)
	}
	return json.Marshal(fields)
}

// object reads the fields of a JSON object; none and null are an empty one. The known fields have
// to be spelled as they are: Go reads "History" as "history", other programs don't, and an image
// must not mean two things.
func object(text json.RawMessage, known ...string) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if len(text) == 0 {
		return fields, nil
	}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	return fields, checkSpelling(fields, known)
}

func checkSpelling(fields map[string]json.RawMessage, known []string) error {
	for field := range fields {
		for _, name := range known {
			if field != name && strings.EqualFold(field, name) {
				return fmt.Errorf("it has the field %q, which has to be %q", field, name)
			}
		}
	}
	return nil
}

// Fields of the config that are changed (OCI image specification, "Image Configuration").
const (
	configCreated = "created"
	configHistory = "history"
	configRootFS  = "rootfs"
	configRunning = "config"
	configLabels  = "Labels"
)

func (c *content) fields() (map[string]json.RawMessage, error) {
	fields, err := object(c.rawConfig, configCreated, configHistory, configRootFS, configRunning)
	if err != nil {
		return nil, c.refuse("its config can't be read: %v", err)
	}
	return fields, nil
}

func (c *content) history() (history, error) {
	fields, err := c.fields()
	if err != nil {
		return nil, err
	}
	var entries history
	if text := fields[configHistory]; len(text) > 0 {
		if err := json.Unmarshal(text, &entries); err != nil {
			return nil, c.refuse("its history can't be read: %v", err)
		}
	}
	entries = slices.DeleteFunc(entries, func(e map[string]json.RawMessage) bool { return e == nil })
	for _, e := range entries {
		if err := checkSpelling(e, []string{historyCreated, historyCreatedBy, historyComment, historyEmpty}); err != nil {
			return nil, c.refuse("its history can't be read: %v", err)
		}
	}
	return entries, nil
}
