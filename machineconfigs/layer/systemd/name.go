package systemd

import (
	"errors"
	"fmt"
	"strings"
)

// maxName is the longest unit name, in bytes (UNIT_NAME_MAX without the terminating zero).
const maxName = 255

// kindOfName is what a unit name is the name of.
type kindOfName uint8

const (
	plain kindOfName = iota
	template
	instance
)

// unitTypes are the suffixes of units; those that may have an alias are marked.
func unitTypes() map[string]bool {
	return map[string]bool{
		"service": true, "socket": true, "target": true, "device": true, "timer": true, "path": true,
		"mount": false, "automount": false, "swap": false, "slice": false, "scope": false,
	}
}

// CheckName tells what is wrong with a unit's name (systemd.unit(5), "Description").
func CheckName(name string) error {
	_, err := parseName(name)
	return err
}

// unitName is a valid unit name in parts: prefix@instance.suffix.
type unitName struct {
	kind                     kindOfName
	prefix, instance, suffix string
}

func parseName(name string) (unitName, error) {
	dot := strings.LastIndexByte(name, '.')
	switch {
	case name == "":
		return unitName{}, errors.New("a unit needs a name")
	case len(name) > maxName:
		return unitName{}, fmt.Errorf("the name of a unit has at most %d bytes, this one has %d", maxName, len(name))
	case dot <= 0:
		return unitName{}, fmt.Errorf("%q is no unit name: it must end in a type, such as .service", name)
	}
	n := unitName{prefix: name[:dot], suffix: name[dot+1:]}
	if _, ok := unitTypes()[n.suffix]; !ok {
		return unitName{}, fmt.Errorf("%q is no unit name: .%s is no type of units", name, n.suffix)
	}
	if bad := strings.TrimLeftFunc(n.prefix, isNameRune); bad != "" {
		return unitName{}, fmt.Errorf("%q is no unit name: only letters, digits and :-_.\\@ are allowed, not %q", name, bad[:1])
	}
	at := strings.IndexByte(n.prefix, '@')
	switch {
	case at < 0:
		return n, nil
	case at == 0:
		return unitName{}, fmt.Errorf("%q is no unit name: there is nothing before the @", name)
	}
	n.prefix, n.instance, n.kind = n.prefix[:at], n.prefix[at+1:], instance
	if n.instance == "" {
		n.kind = template
	}
	return n, nil
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(`:-_.\@`, r)
}

func isName(name string) bool { return CheckName(name) == nil }

// String is the name again.
func (n unitName) String() string {
	if n.kind == plain {
		return n.prefix + "." + n.suffix
	}
	return n.prefix + "@" + n.instance + "." + n.suffix
}

// of is the name of the template's instance.
func (n unitName) of(instanceName string) unitName {
	n.instance, n.kind = instanceName, instance
	if instanceName == "" {
		n.kind = template
	}
	return n
}

// Template is the name of the template that an instance is made from; for other units it is empty.
func Template(name string) string {
	n, err := parseName(name)
	if err != nil || n.kind != instance {
		return ""
	}
	return n.of("").String()
}

// Instance is what stands between the @ and the suffix; empty for units that are no instances.
func Instance(name string) string {
	n, err := parseName(name)
	if err != nil {
		return ""
	}
	return n.instance
}
