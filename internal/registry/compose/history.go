package compose

import (
	"encoding/json"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// LayerCreatedBy marks the configuration layer, so that a newer configuration finds the one that it
// replaces: it is the "created_by" of the layer's entry in the image's history. The entry's
// "comment" is the layer's diff ID, so that an entry which went on to another layer (in a squashed
// image, for example) marks nothing.
const LayerCreatedBy = "layerwright: configuration"

// noHistory is the comment of entries for layers that have none.
const noHistory = "layer without history"

// Fields of an entry of the history (OCI image specification, "Image Configuration").
const (
	historyCreated   = "created"
	historyCreatedBy = "created_by"
	historyComment   = "comment"
	historyEmpty     = "empty_layer"
)

// history is the history of a config, with all fields that its entries have.
type history []map[string]json.RawMessage

// top is the entry of the highest layer, -1 where no entry has one.
func (h history) top() int {
	for i := len(h) - 1; i >= 0; i-- {
		if h.hasLayer(i) {
			return i
		}
	}
	return -1
}

func (h history) hasLayer(i int) bool {
	var empty bool
	return json.Unmarshal(h[i][historyEmpty], &empty) != nil || !empty // none, or nothing that says so
}

func (h history) text(i int, field string) string {
	var text string
	if json.Unmarshal(h[i][field], &text) != nil {
		return ""
	}
	return text
}

// marks reports whether the highest layer is a configuration layer: its entry says so, and that it
// is about this very layer.
func (h history) marks(top v1.Hash) bool {
	i := h.top()
	return i >= 0 && h.text(i, historyCreatedBy) == LayerCreatedBy && h.text(i, historyComment) == top.String()
}

// aligned is the history with one entry for each layer, as the specification wants it and builders
// rely on. The newest entries are believed to be about the highest layers. What is missing below
// them gets entries that say so; what is too much there (the layers were squashed) becomes entries
// without a layer.
func (h history) aligned(layers int, created json.RawMessage) history {
	missing := layers
	for i := range h {
		if h.hasLayer(i) {
			missing--
		}
	}
	aligned := make(history, 0, len(h)+max(missing, 0)+1)
	for range missing {
		aligned = append(aligned, entry(created, "", noHistory))
	}
	for i, e := range h {
		if missing < 0 && h.hasLayer(i) {
			missing++
			e = with(e, historyEmpty, json.RawMessage("true"))
		}
		aligned = append(aligned, e)
	}
	return aligned
}

// entry makes an entry of the history; empty fields are left out.
func entry(created json.RawMessage, createdBy, comment string) map[string]json.RawMessage {
	e := map[string]json.RawMessage{}
	if len(created) > 0 {
		e[historyCreated] = created
	}
	for field, text := range map[string]string{historyCreatedBy: createdBy, historyComment: comment} {
		if text != "" {
			e[field] = quote(text)
		}
	}
	return e
}

// with is a copy of an object with one field set.
func with(object map[string]json.RawMessage, field string, value json.RawMessage) map[string]json.RawMessage {
	changed := make(map[string]json.RawMessage, len(object)+1)
	for k, v := range object {
		changed[k] = v
	}
	changed[field] = value
	return changed
}

// quote is the JSON of a text.
func quote(text string) json.RawMessage {
	quoted, _ := json.Marshal(text) //nolint:errchkjson // a string always has JSON
	return quoted
}

// HasConfigurationOnTop reports whether the highest layer of an image is a configuration layer that
// Append has put there. Another Append puts another one in its place.
func HasConfigurationOnTop(config *v1.ConfigFile) bool {
	layers := len(config.RootFS.DiffIDs)
	for i := len(config.History) - 1; i >= 0 && layers > 0; i-- {
		if entry := config.History[i]; !entry.EmptyLayer {
			return entry.CreatedBy == LayerCreatedBy && entry.Comment == config.RootFS.DiffIDs[layers-1].String()
		}
	}
	return false
}
