package api

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/layerwright/layerwright/test/install"
)

// deliberate are the differences to the published schemas that could refuse or change something, by
// kind and difference. Each says why it cannot.
var deliberate = map[string]string{
	// The widened patterns.
	`MachineOSConfig .spec.renderedImagePushSpec: rule differs: the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the scheme. Or it must be a valid .svc followed by a port, repository, image name, and tag.`: "more hosts and paths in addition",
	`MachineOSBuild .spec.renderedImagePushSpec: rule differs: the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the scheme. Or it must be a valid .svc followed by a port, repository, image name, and tag.`:  "more hosts and paths in addition",
	`MachineOSConfig .status.currentImagePullSpec: rule differs: ` + imageName:                                                                                                                                           "more hosts and paths in addition",
	`MachineOSBuild .status.digestedImagePushSpec: rule differs: ` + imageName:                                                                                                                                           "more hosts and paths in addition",
	`MachineConfigNode .spec.configImage.desiredImage: rule differs: ` + imageName:                                                                                                                                       "more hosts and paths in addition",
	`MachineConfigNode .status.configImage.currentImage: rule differs: ` + imageName:                                                                                                                                     "more hosts and paths in addition",
	`MachineConfigNode .status.configImage.desiredImage: rule differs: ` + imageName:                                                                                                                                     "more hosts and paths in addition",
	`OSImageStream .status.availableStreams[].osImage: rule differs: ` + imageName:                                                                                                                                       "more hosts and paths in addition",
	`OSImageStream .status.availableStreams[].osExtensionsImage: rule differs: ` + imageName:                                                                                                                             "more hosts and paths in addition",
	`OSImageStream : rule differs: spec.defaultStream must reference an existing stream name from status.availableStreams`:                                                                                               "the published spec has no other field, and a published status always has streams",
	`OSImageStream .status: rule differs: defaultStream must reference a stream name from availableStreams`:                                                                                                              "a published status always has both",
	`MachineOSBuild .status.relatedObjects[].group: rule differs: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character.`: "ConfigMaps have an empty group",
	// Requirements that became rules, with the published words.
	`OSImageStream .status: new rule: defaultStream is required beside availableStreams`: "defaultStream is required in the published schema",
	`OSImageStream .status: new rule: availableStreams is required beside defaultStream`: "availableStreams is required in the published schema",
	// New rules about new things.
	`MachineOSConfig .spec.containerFile[]: new rule: content or configMapRef is required`:                                                                                           "content is required in the published schema",
	`MachineOSConfig .spec.containerFile[]: new rule: content and configMapRef are mutually exclusive: the Containerfile is in one place`:                                            "configMapRef is new",
	`MachineOSBuild .status.builder: new rule: pipelineRun is forbidden unless imageBuilderType is Pipeline`:                                                                         "pipelineRun is new",
	`MachineOSConfig .spec.imageBuilder: new rule: pipeline is forbidden unless imageBuilderType is Pipeline`:                                                                        "pipeline is new",
	`MachineConfiguration .spec.managedBootImages.machineManagers[]: new rule: the controlplanemachinesets resource is only supported in the machine.openshift.io API group`:         "the other group is new",
	`MachineConfiguration .spec.managedBootImages.machineManagers[]: new rule: the machinedeployments resource is only supported in the cluster.x-k8s.io API group`:                  "machinedeployments are new",
	`MachineConfiguration .status.managedBootImagesStatus.machineManagers[]: new rule: the controlplanemachinesets resource is only supported in the machine.openshift.io API group`: "the other group is new",
	`MachineConfiguration .status.managedBootImagesStatus.machineManagers[]: new rule: the machinedeployments resource is only supported in the cluster.x-k8s.io API group`:          "machinedeployments are new",
}

// addedShortNames are those of kinds that have none in the published API.
var addedShortNames = map[string][]string{"MachineOSConfig": {"mosc"}, "MachineOSBuild": {"mosb"}}

const imageName = `the OCI Image name should follow the host[:port][/namespace]/name format, resembling a valid URL without the scheme`

func TestSchemasAreSupersets(t *testing.T) {
	t.Parallel()
	ours := definitions(t)
	found := map[string]bool{}
	for kind := range publishedKinds {
		published, own := publishedDefinition(t, kind), ours[kind]
		assert.Equal(t, published.Spec.Scope, own.Spec.Scope, kind)
		names := published.Spec.Names
		names.ShortNames = append(names.ShortNames, addedShortNames[names.Kind]...)
		assert.Equal(t, names, own.Spec.Names, kind)
		require.Len(t, own.Spec.Versions, 1, kind)
		version, publishedVersion := own.Spec.Versions[0], published.Spec.Versions[0]
		assert.Equal(t, publishedVersion.Name, version.Name, kind)
		assert.True(t, version.Storage && version.Served, kind)
		assert.Equal(t, publishedVersion.Subresources, version.Subresources, kind)
		compare(publishedVersion.Schema.OpenAPIV3Schema, version.Schema.OpenAPIV3Schema, "", func(path, format string, args ...any) {
			difference := fmt.Sprintf("%s %s: %s", names.Kind, path, fmt.Sprintf(format, args...))
			found[difference] = true
			assert.Contains(t, deliberate, difference)
		})
	}
	for difference := range deliberate {
		assert.Contains(t, found, difference, "is no difference any more")
	}
}

// TestPublishedColumnsComeFirst holds what scripts read by position, such as with awk.
func TestPublishedColumnsComeFirst(t *testing.T) {
	t.Parallel()
	ours := definitions(t)
	type column struct {
		name, path, kind string
		priority         int32
	}
	columnsOf := func(definition *apiextensionsv1.CustomResourceDefinition) []column {
		columns := []column{}
		for _, c := range definition.Spec.Versions[0].AdditionalPrinterColumns {
			columns = append(columns, column{c.Name, c.JSONPath, c.Type, c.Priority})
		}
		return columns
	}
	for kind := range publishedKinds {
		published, own := publishedDefinition(t, kind), ours[kind]
		want, columns := columnsOf(&published), columnsOf(&own)
		require.GreaterOrEqual(t, len(columns), len(want), kind)
		assert.Equal(t, want, columns[:len(want):len(want)], kind)
	}
}

// compare reports every way in which ours could refuse, change or treat differently what the
// published schema accepts.
func compare(published, ours *apiextensionsv1.JSONSchemaProps, path string, report func(path, format string, args ...any)) {
	same := func(what string, a, b any) {
		if !assert.ObjectsAreEqual(a, b) {
			report(path, "%s: published %v, ours %v", what, a, b)
		}
	}
	same("type", published.Type, ours.Type)
	same("format", published.Format, ours.Format)
	same("pattern", published.Pattern, ours.Pattern)
	same("default", published.Default, ours.Default)
	same("list type", published.XListType, ours.XListType)
	same("map type", published.XMapType, ours.XMapType)
	same("list keys", slices.Sorted(slices.Values(published.XListMapKeys)), slices.Sorted(slices.Values(ours.XListMapKeys)))
	same("int or string", published.XIntOrString, ours.XIntOrString)
	same("unknown fields", published.XPreserveUnknownFields, ours.XPreserveUnknownFields)
	if published.Nullable && !ours.Nullable {
		report(path, "is not nullable")
	}
	for _, required := range ours.Required {
		if !slices.Contains(published.Required, required) {
			report(path, "requires %s", required)
		}
	}
	for _, value := range published.Enum {
		if !slices.ContainsFunc(ours.Enum, func(v apiextensionsv1.JSON) bool { return bytes.Equal(v.Raw, value.Raw) }) {
			report(path, "does not allow %s", value.Raw)
		}
	}
	if len(published.Enum) == 0 && len(ours.Enum) > 0 {
		report(path, "allows some values only")
	}
	compareLimits(published, ours, path, report)
	compareRules(published.XValidations, ours.XValidations, path, report)
	for _, name := range slices.Sorted(maps.Keys(published.Properties)) {
		property, ok := ours.Properties[name]
		if !ok {
			report(path+"."+name, "is missing")
			continue
		}
		compare(new(published.Properties[name]), &property, path+"."+name, report)
	}
	if published.Items != nil && ours.Items != nil {
		compare(published.Items.Schema, ours.Items.Schema, path+"[]", report)
	}
	if published.AdditionalProperties != nil && ours.AdditionalProperties != nil {
		compare(published.AdditionalProperties.Schema, ours.AdditionalProperties.Schema, path+"{}", report)
	}
}

func compareLimits(published, ours *apiextensionsv1.JSONSchemaProps, path string, report func(path, format string, args ...any)) {
	atMost := func(what string, published, ours *int64) {
		if ours != nil && (published == nil || *ours < *published) {
			report(path, "%s is lower", what)
		}
	}
	atLeast := func(what string, published, ours *int64) {
		if ours != nil && *ours > 0 && (published == nil || *ours > *published) {
			report(path, "%s is higher", what)
		}
	}
	atMost("maxLength", published.MaxLength, ours.MaxLength)
	atMost("maxItems", published.MaxItems, ours.MaxItems)
	atMost("maxProperties", published.MaxProperties, ours.MaxProperties)
	atLeast("minLength", published.MinLength, ours.MinLength)
	atLeast("minItems", published.MinItems, ours.MinItems)
	atLeast("minProperties", published.MinProperties, ours.MinProperties)
	if ours.Minimum != nil && (published.Minimum == nil || *ours.Minimum > *published.Minimum) {
		report(path, "minimum is higher")
	}
	if ours.Maximum != nil && (published.Maximum == nil || *ours.Maximum < *published.Maximum) {
		report(path, "maximum is lower")
	}
}

func compareRules(published, ours apiextensionsv1.ValidationRules, path string, report func(path, format string, args ...any)) {
	byMessage := func(rules apiextensionsv1.ValidationRules) map[string]string {
		texts := map[string]string{}
		for _, rule := range rules {
			texts[rule.Message] = rule.Rule
		}
		return texts
	}
	before, now := byMessage(published), byMessage(ours)
	for message, rule := range before {
		switch text, ok := now[message]; {
		case !ok:
			report(path, "rule is missing: %s", message)
		case text != rule:
			report(path, "rule differs: %s", message)
		}
	}
	for message := range now {
		if _, ok := before[message]; !ok {
			report(path, "new rule: %s", message)
		}
	}
}

// definitions are ours, by name.
func definitions(t *testing.T) map[string]apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	byName := map[string]apiextensionsv1.CustomResourceDefinition{}
	for _, object := range install.Objects(t, install.Path(t, "deploy/crds")) {
		var definition apiextensionsv1.CustomResourceDefinition
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &definition, true))
		byName[definition.Name] = definition
	}
	return byName
}

func TestEveryFieldIsDocumented(t *testing.T) {
	t.Parallel()
	var visit func(kind, path string, schema apiextensionsv1.JSONSchemaProps)
	visit = func(kind, path string, schema apiextensionsv1.JSONSchemaProps) {
		if !strings.HasSuffix(path, "metadata") {
			assert.NotEmpty(t, strings.TrimSpace(schema.Description), "%s %s", kind, path)
		}
		if schema.Items != nil {
			schema = *schema.Items.Schema
		}
		for name, property := range schema.Properties {
			visit(kind, path+"."+name, property)
		}
	}
	for _, definition := range definitions(t) {
		visit(definition.Spec.Names.Kind, "", *definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
}
