package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const preamble = `<!-- Generated from deploy/crds by hack/apidocs; make generate writes it. -->

# API reference

Every field of every kind, as the API server knows and checks it; ` + "`kubectl explain`" + ` says the same. What is refused beyond a
field's type and limits stands below it, with the words of the refusal. [Admission policies](policies.md) refuse what one object
alone cannot show.
`

// reference is the whole document.
func reference(kinds []apiextensionsv1.CustomResourceDefinition) string {
	var doc strings.Builder
	doc.WriteString(preamble)
	for _, kind := range kinds {
		for _, version := range kind.Spec.Versions {
			fmt.Fprintf(&doc, "\n- [%s](#%s) %s/%s", kind.Spec.Names.Kind, strings.ToLower(kind.Spec.Names.Kind), kind.Spec.Group, version.Name)
		}
	}
	doc.WriteString("\n")
	for _, kind := range kinds {
		for _, version := range kind.Spec.Versions {
			writeKind(&doc, kind.Spec, version)
		}
	}
	return doc.String()
}

func writeKind(doc *strings.Builder, kind apiextensionsv1.CustomResourceDefinitionSpec, version apiextensionsv1.CustomResourceDefinitionVersion) {
	root := version.Schema.OpenAPIV3Schema
	fmt.Fprintf(doc, "\n## %s\n\n`%s/%s`, %s scope", kind.Names.Kind, kind.Group, version.Name, strings.ToLower(string(kind.Scope)))
	if len(kind.Names.ShortNames) > 0 {
		fmt.Fprintf(doc, ", short name `%s`", strings.Join(kind.Names.ShortNames, "`, `"))
	}
	fmt.Fprintf(doc, "\n\n%s\n%s", text(root.Description), rulesOf(*root))
	var columns, wide []string
	for _, column := range version.AdditionalPrinterColumns {
		if column.Priority == 0 {
			columns = append(columns, column.Name)
		} else {
			wide = append(wide, column.Name)
		}
	}
	if len(columns) > 0 {
		fmt.Fprintf(doc, "\nColumns: %s.", strings.Join(columns, ", "))
		if len(wide) > 0 {
			fmt.Fprintf(doc, " With `-o wide` also: %s.", strings.Join(wide, ", "))
		}
		doc.WriteString("\n")
	}
	for _, name := range []string{"spec", "status"} {
		if property, ok := root.Properties[name]; ok {
			fmt.Fprintf(doc, "\n### %s %s\n", kind.Names.Kind, name)
			writeField(doc, name, property, slices.Contains(root.Required, name))
		}
	}
}

// writeField writes one field and, below it, its own.
func writeField(doc *strings.Builder, path string, field apiextensionsv1.JSONSchemaProps, required bool) {
	facts := []string{typeOf(field)}
	if required {
		facts = append(facts, "required")
	}
	facts = append(facts, limitsOf(field)...)
	if field.Items != nil && field.Items.Schema != nil {
		facts = append(facts, limitsOf(*field.Items.Schema)...)
	}
	fmt.Fprintf(doc, "\n**`%s`** (%s)  \n%s\n%s", path, strings.Join(facts, ", "), text(field.Description), rulesOf(field))
	if field.Items != nil && field.Items.Schema != nil {
		path, field = path+"[]", *field.Items.Schema
		doc.WriteString(rulesOf(field))
	}
	if _, ok := field.Properties["lastTransitionTime"]; ok && strings.HasSuffix(path, "conditions[]") {
		return // Kubernetes documents what a condition is
	}
	for _, name := range slices.Sorted(maps.Keys(field.Properties)) {
		writeField(doc, path+"."+name, field.Properties[name], slices.Contains(field.Required, name))
	}
}

// text keeps Markdown from taking what stands in angle brackets for HTML.
func text(description string) string { return strings.ReplaceAll(description, "<", `\<`) }

func typeOf(field apiextensionsv1.JSONSchemaProps) string {
	switch {
	case field.XIntOrString:
		return "number or string"
	case field.Type == "array" && field.Items != nil && field.Items.Schema != nil:
		return "list of " + typeOf(*field.Items.Schema)
	case field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(*field.AdditionalProperties.Schema)
	case field.Format == "date-time":
		return "time"
	case field.Type == "":
		return "anything"
	default:
		return field.Type
	}
}

func limitsOf(field apiextensionsv1.JSONSchemaProps) []string {
	var limits []string
	add := func(format string, args ...any) { limits = append(limits, fmt.Sprintf(format, args...)) }
	if field.Default != nil {
		add("default `%s`", field.Default.Raw)
	}
	if values := enumOf(field); len(values) > 0 {
		add("one of %s", strings.Join(values, ", "))
	}
	if field.Minimum != nil {
		add("from %g", *field.Minimum)
	}
	if field.Maximum != nil {
		add("to %g", *field.Maximum)
	}
	if field.MinLength != nil && *field.MinLength > 0 {
		add("at least %d characters", *field.MinLength)
	}
	if field.MaxLength != nil {
		add("at most %d characters", *field.MaxLength)
	}
	if field.MinItems != nil && *field.MinItems > 0 {
		add("at least %d items", *field.MinItems)
	}
	if field.MaxItems != nil {
		add("at most %d items", *field.MaxItems)
	}
	if len(field.XListMapKeys) > 0 {
		add("each %s once", strings.Join(field.XListMapKeys, " and "))
	}
	if field.Pattern != "" {
		add("matching `%s`", field.Pattern)
	}
	return limits
}

func enumOf(field apiextensionsv1.JSONSchemaProps) []string {
	var values []string
	for _, value := range field.Enum {
		values = append(values, "`"+string(value.Raw)+"`")
	}
	return values
}

func rulesOf(field apiextensionsv1.JSONSchemaProps) string {
	if len(field.XValidations) == 0 {
		return ""
	}
	rules := "\n"
	for _, rule := range field.XValidations {
		rules += fmt.Sprintf("- Refused otherwise: %s\n", text(rule.Message))
	}
	return rules
}
