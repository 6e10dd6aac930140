package ignition

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/ign-converter/translate/v24tov31"
	"github.com/coreos/ign-converter/util"
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
	case version == "":
		return Stub{}, errors.New("it does not say which specification of Ignition it is in")
	case !specification.MatchString(version):
		return Stub{}, errors.New("what it says is no specification of Ignition")
	case strings.HasPrefix(version, "3."):
		return Stub{Version: version}, nil
	case !strings.HasPrefix(version, "2."):
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
		return Stub{}, fmt.Errorf("it cannot be translated from specification %s of Ignition to %s%s", version, Target, placeIn(err))
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

var (
	specification = regexp.MustCompile(`^\d\.\d{1,2}\.\d{1,2}(-experimental)?$`)
	// place is how the translation says where a fault is.
	place = regexp.MustCompile(`\$(?:\.[A-Za-z0-9]+)+`)
)

// placeIn is where in a stub a translation failed, and nothing of what is there.
func placeIn(err error) string {
	if errors.Is(err, util.UsesNetworkdError) {
		return ": it has units of networkd; write their content as files"
	}
	if at := place.FindString(err.Error()); at != "" {
		return " at " + at
	}
	return ""
}

// onlyRoot refuses paths on named filesystems, which the translation would take for paths of the
// root.
func onlyRoot(config *old.Config) error {
	places := map[string]string{}
	for i, f := range config.Storage.Files {
		places[fmt.Sprintf("$.storage.files.%d", i)] = f.Filesystem
	}
	for i, d := range config.Storage.Directories {
		places[fmt.Sprintf("$.storage.directories.%d", i)] = d.Filesystem
	}
	for i, l := range config.Storage.Links {
		places[fmt.Sprintf("$.storage.links.%d", i)] = l.Filesystem
	}
	for _, at := range slices.Sorted(maps.Keys(places)) {
		if places[at] != "root" {
			return fmt.Errorf("%s is on another filesystem than \"root\", which cannot be translated", at)
		}
	}
	return nil
}
