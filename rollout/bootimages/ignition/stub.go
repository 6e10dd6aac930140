package ignition

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/coreos/ign-converter/translate/v24tov31"
	"github.com/coreos/ignition/config/v2_4"
	old "github.com/coreos/ignition/config/v2_4/types"
	"github.com/coreos/ignition/v2/config/v3_1/types"
	"github.com/coreos/ignition/v2/config/validate"
)

// Target is the specification that stubs are translated to: the oldest that translates, since it is
// the one that most boot images read.
var Target = types.MaxVersion.String()

// Stub is a stub after it was looked at.
type Stub struct {
	// Version is the specification that it is in now.
	Version string
	// Translated is the new content; nil where it was in specification 3 already.
	Translated []byte
}

// Translate reads a stub, and translates it if it is in specification 2. Its errors have nothing of
// its content in them, which is secret.
func Translate(content []byte) (Stub, error) {
	var head struct {
		Ignition struct {
			Version string `json:"version"`
		} `json:"ignition"`
	}
	if err := json.Unmarshal(content, &head); err != nil {
		return Stub{}, errors.New("it is not JSON")
	}
	version := head.Ignition.Version
	switch {
	case strings.HasPrefix(version, "3."):
		return Stub{Version: version}, nil
	case strings.HasPrefix(version, "2."):
	case version == "":
		return Stub{}, errors.New("it does not say which specification of Ignition it is in")
	default:
		return Stub{}, fmt.Errorf("specification %q of Ignition is unknown", version)
	}
	config, rpt, err := v2_4.Parse(content)
	if err != nil || rpt.IsFatal() {
		return Stub{}, fmt.Errorf("it is not valid in specification %s of Ignition", version)
	}
	if err := onlyRoot(&config); err != nil {
		return Stub{}, err
	}
	is, err := v24tov31.Translate(config, map[string]string{"root": "/"})
	if err != nil {
		return Stub{}, fmt.Errorf("translating it from specification %s of Ignition to %s: %w", version, Target, err)
	}
	translated, err := json.Marshal(is)
	if err != nil {
		return Stub{}, fmt.Errorf("writing it: %w", err)
	}
	if rpt := validate.ValidateWithContext(is, translated); rpt.IsFatal() {
		return Stub{}, fmt.Errorf("translated to specification %s of Ignition it is not valid", Target)
	}
	return Stub{Version: is.Ignition.Version, Translated: translated}, nil
}

// onlyRoot refuses paths on named filesystems, which the translation would take for paths of the
// root.
func onlyRoot(config *old.Config) error {
	var places []old.Node
	for _, f := range config.Storage.Files {
		places = append(places, f.Node)
	}
	for _, d := range config.Storage.Directories {
		places = append(places, d.Node)
	}
	for _, l := range config.Storage.Links {
		places = append(places, l.Node)
	}
	for _, p := range places {
		if p.Filesystem != "root" {
			return fmt.Errorf("%q is on the filesystem %q, and only \"root\" can be translated", p.Path, p.Filesystem)
		}
	}
	return nil
}
