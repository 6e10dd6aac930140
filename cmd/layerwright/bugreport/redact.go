package bugreport

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
		"spec.config.storage.files.*.append.*.httpHeaders.*.value", "spec.config.storage.luks.*.keyFile.httpHeaders.*.value",
		"spec.config.storage.luks.*.clevis.custom.config",
		"spec.config.ignition.config.merge.*.httpHeaders.*.value", "spec.config.ignition.config.replace.httpHeaders.*.value",
	},
	"MachineOSConfig": {"spec.containerFile.*.content"},
	"MachineOSBuild":  {"spec.decision.inputs.containerfiles.*.text"},
	"ConfigMap":       {"data.*", "binaryData.*"},
	"Pod":             {"spec.containers.*.env.*.value", "spec.initContainers.*.env.*.value", "spec.ephemeralContainers.*.env.*.value"},
	"Deployment":      {"spec.template.spec.containers.*.env.*.value", "spec.template.spec.initContainers.*.env.*.value"},
	"DaemonSet":       {"spec.template.spec.containers.*.env.*.value", "spec.template.spec.initContainers.*.env.*.value"},
	"Job":             {"spec.template.spec.containers.*.env.*.value", "spec.template.spec.initContainers.*.env.*.value"},
}

// kernelArguments are the fields of which the name stays: the value may be a password.
var kernelArguments = []string{"spec.kernelArguments.*", "spec.config.kernelArguments.shouldExist.*", "spec.config.kernelArguments.shouldNotExist.*"}

// known are the domains whose annotations are read here. What others keep in theirs, such as the
// whole object or the environment of an agent, is not known.
var known = []string{"kubernetes.io", "k8s.io", "openshift.io", "layerwright.io"}

// redact takes out of an object what may be secret, and what no one reads. With contents it leaves
// what MachineConfigs, Containerfiles and ConfigMaps have.
func redact(object map[string]any, kind string, withContents bool) {
	if metadata, is := object["metadata"].(map[string]any); is {
		delete(metadata, "managedFields")
		if annotations, is := metadata["annotations"].(map[string]any); is {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		}
	}
	isContent := slices.Contains([]string{"MachineConfig", "MachineOSConfig", "ConfigMap"}, kind)
	if !withContents || !isContent {
		for _, path := range secretive[kind] {
			hide(object, strings.Split(path, "."), leftOut)
		}
	}
	if !withContents {
		for _, path := range kernelArguments {
			hide(object, strings.Split(path, "."), onlyName)
		}
	}
	hideAnnotations(object["metadata"])
	if template, found, _ := unstructured.NestedMap(object, "spec", "template", "metadata"); found {
		hideAnnotations(template)
		_ = unstructured.SetNestedMap(object, template, "spec", "template", "metadata") // it was read there
	}
	cleaned(object)
}

func hideAnnotations(metadata any) {
	of, _ := metadata.(map[string]any)
	annotations, _ := of["annotations"].(map[string]any)
	for key, value := range annotations {
		domain, _, _ := strings.Cut(key, "/")
		if text, is := value.(string); is && !slices.ContainsFunc(known, func(k string) bool { return domain == k || strings.HasSuffix(domain, "."+k) }) {
			annotations[key] = leftOut(text)
		}
	}
}

func leftOut(text string) string { return fmt.Sprintf("left out: %d bytes", len(text)) }

func onlyName(argument string) string {
	name, value, has := strings.Cut(argument, "=")
	if !has {
		return argument
	}
	return name + "=" + leftOut(value)
}

// hide replaces the text at a path. Keys may be spelled as Ignition takes them too: in any case.
func hide(in any, path []string, instead func(string) string) any {
	if len(path) == 0 {
		if text, is := in.(string); is && text != "" {
			return instead(text)
		}
		return in
	}
	switch of := in.(type) {
	case map[string]any:
		for key, value := range of {
			if path[0] == "*" || strings.EqualFold(path[0], key) {
				of[key] = hide(value, path[1:], instead)
			}
		}
	case []any:
		if path[0] == "*" {
			for i, value := range of {
				of[i] = hide(value, path[1:], instead)
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
