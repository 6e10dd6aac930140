package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func TestReference(t *testing.T) {
	t.Parallel()
	var kind apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.UnmarshalStrict([]byte(`
spec:
  group: example.com
  scope: Cluster
  names: {kind: Widget, plural: widgets, shortNames: [wi]}
  versions:
  - name: v1
    additionalPrinterColumns: [{name: Size}, {name: Color, priority: 1}]
    schema:
      openAPIV3Schema:
        description: Widget is <a widget>.
        properties:
          spec:
            type: object
            description: spec is it.
            required: [size]
            properties:
              size:
                type: integer
                description: size of it.
                minimum: 1
                maximum: 10
                default: 5
                x-kubernetes-validations: [{rule: "self != 3", message: not 3}]
              parts:
                type: array
                description: parts of it.
                maxItems: 2
                items: {type: string, enum: [a, b]}
`), &kind))
	doc := reference([]apiextensionsv1.CustomResourceDefinition{kind})
	assert.Equal(t, preamble+`
- [Widget](#widget) example.com/v1

## Widget

`+"`example.com/v1`, cluster scope, short name `wi`"+`

Widget is \<a widget>.

Columns: Size. With `+"`-o wide`"+` also: Color.

### Widget spec

**`+"`spec`"+`** (object)  
spec is it.

**`+"`spec.parts`"+`** (list of string, at most 2 items, one of `+"`\"a\"`, `\"b\"`"+`)  
parts of it.

**`+"`spec.size`"+`** (integer, required, default `+"`5`"+`, from 1, to 10)  
size of it.

- Refused otherwise: not 3
`, doc)
}
