package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const twoVersions = `
metadata: {name: things.example.com}
spec:
  conversion: {strategy: Webhook}
  group: example.com
  versions:
  - name: v1
    deprecated: true
    deprecationWarning: use v2
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        description: a thing
        properties:
          spec:
            description: what is wanted
            properties:
              description: {type: string, description: said of it}
    subresources: {status: {}}
  - name: v2
    served: true
    storage: true
`

func TestOneVersionIsLeft(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run("v1", strings.NewReader(twoVersions), &out))
	assert.YAMLEq(t, `
metadata: {name: things.example.com}
spec:
  group: example.com
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {properties: {spec: {properties: {description: {type: string}}}}}}
    subresources: {status: {}}
`, out.String(), "a property that is named description stays, and the status subresource too")
}

func TestSpecHasTheNamedPropertiesAlone(t *testing.T) {
	const things = "spec: {versions: [{name: v1, schema: {openAPIV3Schema: {properties: {spec: {required: [a], properties: {a: {}, b: {properties: {c: {}, d: {}}}, e: {}}}}}}}]}"
	var out bytes.Buffer
	require.NoError(t, run("v1", strings.NewReader(things), &out, "b.c"))
	assert.YAMLEq(t, "spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {properties: {spec: {required: [a], properties: {a: {}, b: {properties: {c: {}}}}}}}}}]}", out.String())
	require.ErrorContains(t, run("v1", strings.NewReader(things), &out, "b.f"), "no property f")
}

func TestVersionThatIsNotThere(t *testing.T) {
	require.ErrorContains(t, run("v3", strings.NewReader(twoVersions), &bytes.Buffer{}), "no version v3")
	require.ErrorContains(t, run("v1", strings.NewReader("{"), &bytes.Buffer{}), "decode the definition")
}
