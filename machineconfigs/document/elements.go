package document

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Elements are the names in an Ignition configuration of any specification.
type Elements struct {
	Storage struct {
		Files       []pathElement   `json:"files"`
		Directories []pathElement   `json:"directories"`
		Links       []pathElement   `json:"links"`
		Disks       []deviceElement `json:"disks"`
		Filesystems []deviceElement `json:"filesystems"`
		Luks        []namedElement  `json:"luks"`
		Raid        []namedElement  `json:"raid"`
	} `json:"storage"`
	Systemd struct {
		Units []unitElement `json:"units"`
	} `json:"systemd"`
	Passwd struct {
		Users  []namedElement `json:"users"`
		Groups []namedElement `json:"groups"`
	} `json:"passwd"`
}

type pathElement struct {
	Path string `json:"path"`
}

type deviceElement struct {
	Device string `json:"device"`
}

type namedElement struct {
	Name string `json:"name"`
}

type unitElement struct {
	Name    string         `json:"name"`
	Dropins []namedElement `json:"dropins"`
}

// ElementsOf gives the names in a configuration that has been read.
func ElementsOf(cfg *types.Config) *Elements {
	e := &Elements{}
	for i := range cfg.Storage.Files {
		e.Storage.Files = append(e.Storage.Files, pathElement{cfg.Storage.Files[i].Path})
	}
	for i := range cfg.Storage.Directories {
		e.Storage.Directories = append(e.Storage.Directories, pathElement{cfg.Storage.Directories[i].Path})
	}
	for i := range cfg.Storage.Links {
		e.Storage.Links = append(e.Storage.Links, pathElement{cfg.Storage.Links[i].Path})
	}
	for _, d := range cfg.Storage.Disks {
		e.Storage.Disks = append(e.Storage.Disks, deviceElement{d.Device})
	}
	for _, f := range cfg.Storage.Filesystems {
		e.Storage.Filesystems = append(e.Storage.Filesystems, deviceElement{f.Device})
	}
	for _, l := range cfg.Storage.Luks {
		e.Storage.Luks = append(e.Storage.Luks, namedElement{l.Name})
	}
	for _, r := range cfg.Storage.Raid {
		e.Storage.Raid = append(e.Storage.Raid, namedElement{r.Name})
	}
	for i := range cfg.Systemd.Units {
		unit := unitElement{Name: cfg.Systemd.Units[i].Name}
		for _, d := range cfg.Systemd.Units[i].Dropins {
			unit.Dropins = append(unit.Dropins, namedElement{d.Name})
		}
		e.Systemd.Units = append(e.Systemd.Units, unit)
	}
	for _, u := range cfg.Passwd.Users {
		e.Passwd.Users = append(e.Passwd.Users, namedElement{u.Name})
	}
	for _, g := range cfg.Passwd.Groups {
		e.Passwd.Groups = append(e.Passwd.Groups, namedElement{g.Name})
	}
	return e
}

// Name says what a path leads to, such as file "/etc/chrony.conf"; empty where that has no name.
func (e *Elements) Name(path string) string {
	segments := PathSegments(path)
	if len(segments) < 3 {
		return ""
	}
	i, isIndex := segments[2].(int)
	if !isIndex {
		return ""
	}
	list := fmt.Sprintf("%v.%v", segments[0], segments[1])
	kind, names := e.List(list)
	if i < 0 || i >= len(names) {
		return ""
	}
	name := fmt.Sprintf("%s %q", kind, names[i])
	if list == "systemd.units" && len(segments) >= 5 && segments[3] == "dropins" {
		if j, ok := segments[4].(int); ok && j >= 0 && j < len(e.Systemd.Units[i].Dropins) {
			return fmt.Sprintf("drop-in %q of %s", e.Systemd.Units[i].Dropins[j].Name, name)
		}
	}
	return name
}

// List is what people call the elements of a list, and their names.
func (e *Elements) List(list string) (kind string, names []string) {
	switch list {
	case "storage.files":
		return "file", pathsOf(e.Storage.Files)
	case "storage.directories":
		return "directory", pathsOf(e.Storage.Directories)
	case "storage.links":
		return "link", pathsOf(e.Storage.Links)
	case "storage.disks":
		return "disk", devicesOf(e.Storage.Disks)
	case "storage.filesystems":
		return "filesystem on", devicesOf(e.Storage.Filesystems)
	case "storage.luks":
		return "encrypted device", namesOf(e.Storage.Luks)
	case "storage.raid":
		return "RAID", namesOf(e.Storage.Raid)
	case "systemd.units":
		for _, unit := range e.Systemd.Units {
			names = append(names, unit.Name)
		}
		return "unit", names
	case "passwd.users":
		return "user", namesOf(e.Passwd.Users)
	case "passwd.groups":
		return "group", namesOf(e.Passwd.Groups)
	}
	return "", nil
}

func pathsOf(list []pathElement) []string {
	names := make([]string, 0, len(list))
	for _, e := range list {
		names = append(names, e.Path)
	}
	return names
}

func devicesOf(list []deviceElement) []string {
	names := make([]string, 0, len(list))
	for _, e := range list {
		names = append(names, e.Device)
	}
	return names
}

func namesOf(list []namedElement) []string {
	names := make([]string, 0, len(list))
	for _, e := range list {
		names = append(names, e.Name)
	}
	return names
}

// fixes say what to do about messages of Ignition's validation that do not say it themselves.
var fixes = map[string]string{
	ignerrors.ErrDuplicate.Error():               "it is there a second time in the same MachineConfig: remove one of the two",
	ignerrors.ErrDirtyPath.Error():               "write the path without \"..\", \".\", and doubled or closing slashes",
	ignerrors.ErrPathRelative.Error():            "start the path with a slash",
	ignerrors.ErrNoPath.Error():                  "add path",
	ignerrors.ErrFileIllegalMode.Error():         "a mode is between 0 and 4095 (07777); YAML reads 0644 as octal, JSON needs 420 for it",
	ignerrors.ErrCompressionInvalid.Error():      "use gzip, or leave compression out",
	ignerrors.ErrInvalidScheme.Error():           "use a data URL, or http or https with verification.hash",
	ignerrors.ErrInvalidUrl.Error():              "write a data URL, or http or https with verification.hash",
	ignerrors.ErrHashMalformed.Error():           "write sha256-<sum> or sha512-<sum>",
	ignerrors.ErrHashUnrecognized.Error():        "write sha256-<sum> or sha512-<sum>",
	ignerrors.ErrHashWrongSize.Error():           "sha256 has 64 hexadecimal digits, sha512 has 128",
	ignerrors.ErrOverwriteAndNilSource.Error():   "add contents.source, or remove overwrite",
	ignerrors.ErrInvalidSystemdExt.Error():       "a unit's name ends in .service, .socket, .mount, .timer or another of systemd's types",
	ignerrors.ErrInvalidSystemdDropinExt.Error(): "a drop-in's name ends in .conf",
	ignerrors.ErrPathConflictsSystemd.Error():    "say it either as a unit or as a file",
	ignerrors.ErrFileUsedSymlink.Error():         "write the path that the link leads to",
	ignerrors.ErrDirectoryUsedSymlink.Error():    "write the path that the link leads to",
	ignerrors.ErrLinkUsedSymlink.Error():         "write the path that the link leads to",
	ignerrors.ErrBothIDAndNameSet.Error():        "remove one of the two",
	ignerrors.ErrModeSpecialBits.Error():         "Ignition leaves them out up to specification 3.5; if a decimal mode was meant to be octal, write 420 for 0644",
}

// typeMismatch is how encoding/json says that a value has another type.
var typeMismatch = regexp.MustCompile(`cannot unmarshal (.+) into Go .*of type (.+)$`)

// Explain adds the fix to a message of Ignition's, where one is known.
func Explain(message string) error {
	if fix, known := fixes[message]; known {
		return errors.New(message + ": " + fix)
	}
	if m := typeMismatch.FindStringSubmatch(message); m != nil {
		return fmt.Errorf("%s where %s belongs", withArticle(m[1]), goTypeName(m[2]))
	}
	return errors.New(message)
}

func withArticle(value string) string {
	if strings.IndexByte("aeiou", value[0]) >= 0 {
		return "an " + value
	}
	return "a " + value
}

// goTypeName says the name of a Go type in words of JSON.
func goTypeName(name string) string {
	switch {
	case name == "string", name == "bool":
		return "a " + name
	case strings.HasPrefix(name, "int"), strings.HasPrefix(name, "uint"):
		return "a whole number"
	case strings.HasPrefix(name, "[]"):
		return "a list"
	}
	if strings.HasPrefix(name, "types.") && stringTypes[strings.TrimPrefix(name, "types.")] {
		return "a string"
	}
	return "an object"
}

// stringTypes are the types of Ignition that are strings.
var stringTypes = map[string]bool{
	"Device": true, "FilesystemOption": true, "Group": true, "KernelArgument": true, "LuksOption": true, "MountOption": true,
	"NoProxyItem": true, "OpenOption": true, "RaidOption": true, "SSHAuthorizedKey": true,
}
