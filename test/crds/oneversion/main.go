// Command oneversion reads a CustomResourceDefinition on standard input and writes it with one version only, which is
// served and stored, and without descriptions. A definition of two versions needs a conversion webhook, and the tests
// have none: without one the API server renames an object from version to version and prunes the fields of the other
// shape. Descriptions are most of the text, and no API server reads them. With paths of properties behind the version, the
// spec has these alone, as far as the tests write it; of anything else the API server stores nothing.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: oneversion VERSION [PROPERTY...] <definition >definition")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdin, os.Stdout, os.Args[2:]...); err != nil {
		fmt.Fprintln(os.Stderr, "oneversion:", err)
		os.Exit(1)
	}
}

func run(version string, in io.Reader, out io.Writer, properties ...string) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("read the definition: %w", err)
	}
	text, err = oneVersion(text, version, properties)
	if err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return fmt.Errorf("write the definition: %w", err)
	}
	return nil
}

func oneVersion(definition []byte, version string, properties []string) ([]byte, error) {
	var crd map[string]any
	if err := yaml.Unmarshal(definition, &crd); err != nil {
		return nil, fmt.Errorf("decode the definition: %w", err)
	}
	spec, _ := crd["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	var kept map[string]any
	for _, v := range versions {
		if v, _ := v.(map[string]any); v["name"] == version {
			kept = v
		}
	}
	if kept == nil {
		return nil, fmt.Errorf("the definition has no version %s", version)
	}
	kept["served"], kept["storage"] = true, true
	delete(kept, "deprecated")
	delete(kept, "deprecationWarning")
	dropDescriptions(kept)
	of, _, _ := unstructured.NestedFieldNoCopy(kept, "schema", "openAPIV3Schema", "properties", "spec")
	schema, _ := of.(map[string]any)
	if err := keepProperties(schema, properties); err != nil {
		return nil, err
	}
	spec["versions"] = []any{kept}
	delete(spec, "conversion")
	return yaml.Marshal(crd)
}

// keepProperties leaves a schema the properties of these paths alone, if there are any, and what it requires.
func keepProperties(schema map[string]any, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	all, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	below := map[string][]string{}
	for _, name := range required {
		below[fmt.Sprint(name)] = nil
	}
	for _, path := range paths {
		name, rest, deeper := strings.Cut(path, ".")
		more := below[name]
		if deeper {
			more = append(more, rest)
		}
		below[name] = more
	}
	for name, rest := range below {
		property, known := all[name].(map[string]any)
		if !known {
			return fmt.Errorf("the definition has no property %s", name)
		}
		if err := keepProperties(property, rest); err != nil {
			return err
		}
	}
	maps.DeleteFunc(all, func(name string, _ any) bool { _, kept := below[name]; return !kept })
	return nil
}

// dropDescriptions spares a property of that name: it is an object, a description is a string.
func dropDescriptions(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["description"].(string); ok {
			delete(v, "description")
		}
		for _, inner := range v {
			dropDescriptions(inner)
		}
	case []any:
		for _, inner := range v {
			dropDescriptions(inner)
		}
	}
}
