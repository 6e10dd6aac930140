package api

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// ruleCase is a rule of a kind, something that it accepts, and something that it refuses.
type ruleCase struct {
	Kind    string         `json:"kind"`
	Message string         `json:"message"`
	Before  map[string]any `json:"before"`
	Accept  map[string]any `json:"accept"`
	Refuse  map[string]any `json:"refuse"`
}

func readTestdata(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(content, into))
}

func bases(t *testing.T) map[string]map[string]any {
	t.Helper()
	var objects []map[string]any
	readTestdata(t, "bases.yaml", &objects)
	byKind := map[string]map[string]any{}
	for _, object := range objects {
		byKind[(&unstructured.Unstructured{Object: object}).GetKind()] = object
	}
	return byKind
}

func TestEveryRuleAcceptsAndRefuses(t *testing.T) {
	t.Parallel()
	server, bases := newServer(t), bases(t)
	var cases []ruleCase
	readTestdata(t, "rules.yaml", &cases)
	byKind := map[string][]ruleCase{}
	for _, c := range cases {
		byKind[c.Kind] = append(byKind[c.Kind], c)
	}
	for kind, cases := range byKind {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server.own(t, kind)
			for _, c := range cases {
				t.Run(c.Message, func(t *testing.T) { runRule(t, server, bases[kind], c) })
			}
		})
	}
}

func runRule(t *testing.T, server *server, base map[string]any, c ruleCase) {
	t.Helper()
	with := func(patches ...map[string]any) *unstructured.Unstructured {
		object := base
		for _, patch := range patches {
			object = merge(object, patch)
		}
		return (&unstructured.Unstructured{Object: object}).DeepCopy()
	}
	if c.Before == nil {
		t.Run("accepts", func(t *testing.T) {
			_, err := server.create(t, with(c.Accept))
			require.NoError(t, err)
		})
		t.Run("refuses", func(t *testing.T) {
			_, err := server.create(t, with(c.Refuse))
			require.ErrorContains(t, err, c.Message)
		})
		return
	}
	before, err := server.create(t, with(c.Before))
	require.NoError(t, err)
	_, err, statusErr := server.update(t, before, with(c.Before, c.Refuse))
	if err == nil {
		err = statusErr
	}
	require.ErrorContains(t, err, c.Message)
	before, err = server.resource(t, before).Get(t.Context(), before.GetName(), getOptions)
	require.NoError(t, err)
	_, err, statusErr = server.update(t, before, with(c.Before, c.Accept))
	require.NoError(t, err)
	require.NoError(t, statusErr)
}

func TestRulesFileIsComplete(t *testing.T) {
	t.Parallel()
	type rule struct{ kind, message string }
	present := map[rule]bool{}
	var visit func(kind string, schema apiextensionsv1.JSONSchemaProps)
	visit = func(kind string, schema apiextensionsv1.JSONSchemaProps) {
		for _, validation := range schema.XValidations {
			present[rule{kind, validation.Message}] = true
		}
		for _, property := range schema.Properties {
			visit(kind, property)
		}
		if schema.Items != nil {
			visit(kind, *schema.Items.Schema)
		}
		if schema.AdditionalProperties != nil {
			visit(kind, *schema.AdditionalProperties.Schema)
		}
	}
	for _, definition := range definitions(t) {
		visit(definition.Spec.Names.Kind, *definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
	var cases []ruleCase
	readTestdata(t, "rules.yaml", &cases)
	tested := map[rule]bool{}
	for _, c := range cases {
		tested[rule{c.Kind, c.Message}] = true
	}
	assert.Equal(t, present, tested)
}
