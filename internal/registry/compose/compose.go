package compose

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

// Change is what is done to an image: nothing in it depends on the time or on chance.
type Change struct {
	Labels, Annotations map[string]string
	// Created is when the image is said to have been made; zero keeps what the content says.
	Created time.Time
	// Layer is the new configuration layer, nil for none.
	Layer v1.Layer
}

// Stripped is the content without the configuration layer that an earlier Append put on top of it,
// and whether there was one.
func (c *Content) Stripped() (*Content, bool, error) {
	entries, err := c.history()
	if err != nil {
		return nil, false, err
	}
	last := len(c.Layers) - 1
	if last < 0 || !entries.marks(c.Config.RootFS.DiffIDs[last]) {
		return c, false, nil
	}
	top := entries.top()
	below := *c
	below.Layers = c.Layers[:last]
	config, err := c.rewriteConfig(configEdit{
		diffIDs: c.Config.RootFS.DiffIDs[:last],
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
func (c *Content) set(manifest *v1.Manifest, config []byte) (err error) {
	if manifest.Config, err = describeConfig(manifest.Config.MediaType, config); err != nil {
		return err
	}
	if c.Raw, err = json.Marshal(manifest); err != nil {
		return fmt.Errorf("writing a manifest: %w", err)
	}
	c.manifest, c.RawConfig = manifest, config
	c.Config, err = v1.ParseConfigFile(bytes.NewReader(config))
	return err
}

func describeConfig(mediaType types.MediaType, config []byte) (v1.Descriptor, error) {
	digest, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("hashing a config: %w", err)
	}
	return v1.Descriptor{MediaType: mediaType, Digest: digest, Size: size}, nil
}

// Changed is the image with the change made to it. The content must be stripped.
func (c *Content) Changed(ch Change) (*Image, error) {
	fields, err := c.fields()
	if err != nil {
		return nil, err
	}
	edit := configEdit{diffIDs: c.Config.RootFS.DiffIDs, labels: ch.Labels, created: fields[configCreated]}
	if string(edit.created) == "null" {
		edit.created = nil
	}
	if !ch.Created.IsZero() {
		edit.created = quote(ch.Created.UTC().Truncate(time.Second).Format(time.RFC3339))
	}
	entries, err := c.history()
	if err != nil {
		return nil, err
	}
	edit.history = entries.aligned(len(c.Layers), edit.created)
	manifest := &v1.Manifest{
		SchemaVersion: 2, //nolint:mnd // the only one with layers
		MediaType:     c.MediaType,
		Config:        c.manifest.Config,
		Layers:        append([]v1.Descriptor{}, c.manifest.Layers...),
		Annotations:   Annotations(c.MediaType, c.manifest.Annotations, ch.Annotations),
	}
	layers := slices.Clone(c.Layers)
	if ch.Layer != nil {
		added, diffID, err := c.describeLayer(ch.Layer)
		if err != nil {
			return nil, err
		}
		manifest.Layers, layers = append(manifest.Layers, added), append(layers, ch.Layer)
		edit.diffIDs = append(slices.Clone(edit.diffIDs), diffID)
		edit.history = append(edit.history, entry(edit.created, LayerCreatedBy, diffID.String()))
	}
	config, err := c.rewriteConfig(edit)
	if err != nil {
		return nil, err
	}
	final := Content{MediaType: c.MediaType, Layers: layers}
	if err := final.set(manifest, config); err != nil {
		return nil, err
	}
	return final.Image(), nil
}

// describeLayer is what the manifest says about the configuration layer.
func (c *Content) describeLayer(layer v1.Layer) (desc v1.Descriptor, diffID v1.Hash, err error) {
	if desc.MediaType, err = layer.MediaType(); err != nil {
		return desc, diffID, err
	}
	if desc.Size, err = layer.Size(); err != nil {
		return desc, diffID, err
	}
	if desc.Digest, err = layer.Digest(); err != nil {
		return desc, diffID, err
	}
	desc.Annotations = Annotations(c.MediaType, nil, map[string]string{mcfgv1.ImageAnnotationLayer: mcfgv1.ImageLayerConfiguration})
	diffID, err = layer.DiffID()
	return desc, diffID, err
}

// Annotations joins ours to what is there; Docker's formats have none.
func Annotations(mediaType types.MediaType, there, ours map[string]string) map[string]string {
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
func (c *Content) rewriteConfig(edit configEdit) ([]byte, error) {
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
func (c *Content) relabelled(running json.RawMessage, more map[string]string) (json.RawMessage, error) {
	fields, err := object(running, configLabels)
	if err != nil {
		return nil, c.refuse("its config can't be read: %v", err)
	}
	labels := map[string]string{}
	maps.Copy(labels, c.Config.Config.Labels)
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

func (c *Content) fields() (map[string]json.RawMessage, error) {
	fields, err := object(c.RawConfig, configCreated, configHistory, configRootFS, configRunning)
	if err != nil {
		return nil, c.refuse("its config can't be read: %v", err)
	}
	return fields, nil
}

func (c *Content) history() (history, error) {
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
