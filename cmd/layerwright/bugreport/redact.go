package bugreport

import (
	"fmt"
	"strings"

	"github.com/layerwright/layerwright/internal/fault"
)

// secretive are the fields whose text is left out, by the path that leads to them from the root of
// an object; * is any item of a list or any key.
var secretive = map[string][]string{
	"MachineConfig": {
		"spec.config.storage.files.*.contents.source", "spec.config.storage.files.*.append.*.source",
		"spec.config.storage.files.*.contents.httpHeaders.*.value", "spec.config.systemd.units.*.contents", "spec.config.systemd.units.*.dropins.*.contents",
		"spec.config.passwd.users.*.passwordHash", "spec.config.passwd.users.*.sshAuthorizedKeys.*", "spec.config.storage.luks.*.keyFile.source",
		"spec.config.ignition.config.merge.*.source", "spec.config.ignition.config.replace.source",
	},
	"MachineOSConfig": {"spec.containerFile.*.content"},
	"ConfigMap":       {"data.*", "binaryData.*"},
	"Pod":             {"spec.containers.*.env.*.value", "spec.initContainers.*.env.*.value"},
	"Deployment":      {"spec.template.spec.containers.*.env.*.value"},
	"DaemonSet":       {"spec.template.spec.containers.*.env.*.value"},
	"Job":             {"spec.template.spec.containers.*.env.*.value", "spec.template.spec.initContainers.*.env.*.value"},
}

// redact takes out of an object what may be secret, and what no one reads. With contents it leaves
// what MachineConfigs, Containerfiles and ConfigMaps have.
func redact(object map[string]any, kind string, withContents bool) {
	if metadata, is := object["metadata"].(map[string]any); is {
		delete(metadata, "managedFields")
		if annotations, is := metadata["annotations"].(map[string]any); is {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		}
	}
	if !withContents {
		for _, path := range secretive[kind] {
			hide(object, strings.Split(path, "."))
		}
	}
	cleaned(object)
}

// hide replaces the text at a path by its size.
func hide(in any, path []string) any {
	if len(path) == 0 {
		if text, is := in.(string); is && text != "" {
			return fmt.Sprintf("left out: %d bytes", len(text))
		}
		return in
	}
	switch of := in.(type) {
	case map[string]any:
		for key, value := range of {
			if path[0] == "*" || path[0] == key {
				of[key] = hide(value, path[1:])
			}
		}
	case []any:
		if path[0] == "*" {
			for i, value := range of {
				of[i] = hide(value, path[1:])
			}
		}
	}
	return in
}

// cleaned takes users and queries out of all URLs.
func cleaned(in any) any {
	switch of := in.(type) {
	case string:
		return fault.Redact(of)
	case map[string]any:
		for key, value := range of {
			of[key] = cleaned(value)
		}
	case []any:
		for i, value := range of {
			of[i] = cleaned(value)
		}
	}
	return in
}
