package dockerconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// member is one field of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// is compares the way encoding/json does, and with it every program that reads these files.
func (m member) is(name string) bool { return strings.EqualFold(m.name, name) }

// text is the value, which must be a string.
func (m member) text() (string, error) {
	var text *string
	if err := json.Unmarshal(m.value, &text); err != nil || text == nil {
		return "", &problem{what: fmt.Sprintf("%q is no string", cut(m.name)), fix: fixFormat}
	}
	return *text, nil
}

// membersOf reads a JSON object, in its order. Unlike encoding/json it takes no null and no field
// twice. Its errors are problems and have none of the content: a message of encoding/json quotes
// what it stumbled over, and that may be a piece of a password.
func membersOf(data []byte, what string) ([]member, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	first, err := decoder.Token()
	if errors.Is(err, io.EOF) {
		return nil, &problem{what: what + " is empty", fix: fixFormat}
	}
	if err != nil {
		return nil, noJSON(what, decoder)
	}
	if first != json.Delim('{') {
		return nil, &problem{what: what + " is " + kindOf(first) + ", not a JSON object", fix: fixFormat}
	}
	var members []member
	for decoder.More() {
		m, err := nextMember(decoder)
		if err != nil {
			return nil, noJSON(what, decoder)
		}
		for _, other := range members {
			if other.is(m.name) {
				return nil, &problem{what: fmt.Sprintf("%s has %q twice", what, cut(m.name)), fix: fixOne}
			}
		}
		members = append(members, m)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, noJSON(what, decoder)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, &problem{what: what + " goes on after its end", fix: fixFormat}
	}
	return members, nil
}

func nextMember(decoder *json.Decoder) (m member, err error) {
	token, err := decoder.Token()
	if err != nil {
		return m, err
	}
	m.name, _ = token.(string) // an object's keys are nothing else
	return m, decoder.Decode(&m.value)
}

func noJSON(what string, decoder *json.Decoder) error {
	return &problem{what: fmt.Sprintf("%s is no valid JSON from byte %d on", what, decoder.InputOffset()), fix: fixFormat}
}

func kindOf(token json.Token) string {
	switch token.(type) {
	case nil:
		return "null"
	case json.Delim:
		return "an array"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	default:
		return "a number"
	}
}

// cut keeps the name of an unknown field readable, and short enough to hold no token that landed in
// the wrong place.
func cut(name string) string {
	const enough = 20
	if len(name) <= enough {
		return name
	}
	return strings.ToValidUTF8(name[:enough], "") + "..."
}
