package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

var definitions = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group, Scope string
		Names        struct{ Plural, Kind string }
		Versions     []struct {
			Name            string
			Served, Storage bool
			Schema          struct{ OpenAPIV3Schema *spec.Schema }
			Subresources    struct{ Status *struct{} }
		}
	}
}

// establish says that the kind is served. On a real server that takes a moment.
func establish(o object) {
	var conditions []any
	for _, kind := range []string{"NamesAccepted", "Established"} {
		conditions = append(conditions, map[string]any{"type": kind, "status": "True", "reason": "Accepted", "message": "the kind is served"})
	}
	content(o)["status"] = map[string]any{"conditions": conditions}
}

// kindOf is the kind that a definition defines.
func kindOf(o object) (*kind, error) {
	var d definition
	raw, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	if err != nil {
		return nil, err
	}
	names := d.Spec.Names
	k := &kind{resource: names.Plural, namespaced: d.Spec.Scope == "Namespaced", schemas: map[string]*customSchema{}}
	for _, v := range d.Spec.Versions {
		if v.Storage {
			k.gvk = schema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: names.Kind}
		}
		if !v.Served {
			continue
		}
		if k.versions = append(k.versions, v.Name); v.Subresources.Status != nil {
			k.status, k.onCreate = true, func(o object) { delete(content(o), "status") }
		}
		if k.schemas[v.Name], err = newSchema(v.Schema.OpenAPIV3Schema); err != nil {
			return nil, fmt.Errorf("version %s: %w", v.Name, err)
		}
	}
	if k.gvk.Version == "" {
		return nil, errors.New("no version is stored")
	}
	return k, nil
}

// define serves the kind of a definition from now on, or no more. s.mu is held.
func (s *Server) define(o object, gone bool) error {
	k, err := kindOf(o)
	if err != nil {
		return apierrors.NewInvalid(definitions.GroupKind(), o.GetName(), field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())})
	}
	if k.table = newTable(s.revision); s.kinds[k.gr()] != nil {
		k.table = s.kinds[k.gr()].table
	}
	if s.kinds[k.gr()] = k; !gone {
		return nil
	}
	var all []*entry
	k.table.items.Ascend(func(e *entry) bool { all = append(all, e); return true })
	for _, e := range all {
		last, err := k.decode(e, k.gvk.Version)
		if err == nil {
			_, err = s.put(k.table, e.key, last, true, k.encode)
		}
		if err != nil {
			return err
		}
	}
	delete(s.kinds, k.gr())
	close(k.table.news)
	k.table.news = nil
	return nil
}

func content(o object) map[string]any { return o.(*unstructured.Unstructured).Object }

// keepCustom keeps what an update of a custom resource may not change. Its generation counts the changes of all but the metadata.
func (k *kind) keepCustom(o, was object, ofStatus bool) {
	to, from := content(o), content(was)
	if k.status || k.gvk == definitions {
		if ofStatus {
			from = runtime.DeepCopyJSON(from)
			to, from = from, to
			o.(*unstructured.Unstructured).Object = to
		}
		if delete(to, "status"); from["status"] != nil {
			to["status"] = from["status"]
		}
	}
	a, b := runtime.DeepCopyJSON(content(o)), runtime.DeepCopyJSON(content(was))
	delete(a, "metadata")
	delete(b, "metadata")
	if !ofStatus && !equality.Semantic.DeepEqual(a, b) {
		o.SetGeneration(was.GetGeneration() + 1)
	}
}

// customSchema is the schema of one version of a custom resource.
type customSchema struct {
	root      *spec.Schema
	validator *validate.SchemaValidator
}

func newSchema(root *spec.Schema) (*customSchema, error) {
	if root == nil {
		return nil, errors.New("it has no schema")
	}
	if err := normalise(root); err != nil {
		return nil, err
	}
	return &customSchema{root, validate.NewSchemaValidator(root, nil, "", strfmt.Default)}, nil
}

func is(s *spec.Schema, extension string) bool {
	yes, _ := s.Extensions.GetBool("x-kubernetes-" + extension)
	return yes
}

// normalise makes a schema of a definition one of OpenAPI, as apiextensions does.
func normalise(s *spec.Schema) error {
	if is(s, "int-or-string") {
		s.Type = spec.StringOrArray{"integer", "string"}
	}
	if s.Default != nil { // its whole numbers become integers
		raw, err := json.Marshal(s.Default)
		if err == nil {
			err = utiljson.Unmarshal(raw, &s.Default)
		}
		if err != nil {
			return err
		}
	}
	for name, p := range s.Properties {
		if err := normalise(&p); err != nil {
			return err
		}
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		if err := normalise(s.Items.Schema); err != nil {
			return err
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		return normalise(s.AdditionalProperties.Schema)
	}
	return nil
}

// shape removes the fields that the schema does not have, and sets those that have a default.
func (c *customSchema) shape(o object) { shape(content(o), c.root, true) }

func shape(value any, s *spec.Schema, resource bool) {
	if list, ok := value.([]any); ok && s.Items != nil && s.Items.Schema != nil {
		for _, item := range list {
			shape(item, s.Items.Schema, is(s.Items.Schema, "embedded-resource"))
		}
	}
	v, ok := value.(map[string]any)
	if !ok {
		return
	}
	for key, child := range v {
		p, known := s.Properties[key]
		more := s.AdditionalProperties
		switch {
		case resource && (key == "apiVersion" || key == "kind" || key == "metadata"):
		case known && child == nil && p.Default != nil && !p.Nullable:
			delete(v, key)
		case known:
			shape(child, &p, is(&p, "embedded-resource"))
		case more != nil && more.Schema != nil:
			shape(child, more.Schema, is(more.Schema, "embedded-resource"))
		case more == nil && !is(s, "preserve-unknown-fields"):
			delete(v, key)
		}
	}
	for key, p := range s.Properties {
		if _, there := v[key]; !there && p.Default != nil {
			v[key] = runtime.DeepCopyJSONValue(p.Default)
			shape(v[key], &p, false)
		}
	}
}

// check returns what is wrong with an object, in the words of apiextensions.
func (c *customSchema) check(o object) (errs field.ErrorList) {
	for _, err := range c.validator.Validate(content(o)).Errors {
		var v *openapierrors.Validation
		if !errors.As(err, &v) {
			errs = append(errs, field.Invalid(nil, "", err.Error()))
			continue
		}
		at, value := field.NewPath(strings.TrimPrefix(v.Name, ".")), v.Value
		if value == nil {
			value = ""
		}
		switch v.Code() {
		case openapierrors.RequiredFailCode:
			errs = append(errs, field.Required(at, ""))
		case openapierrors.EnumFailCode:
			var allowed []string
			for _, a := range v.Values {
				allowed = append(allowed, fmt.Sprint(a))
			}
			errs = append(errs, field.NotSupported(at, value, allowed))
		case openapierrors.InvalidTypeCode:
			errs = append(errs, field.TypeInvalid(at, value, v.Error()))
		default:
			errs = append(errs, field.Invalid(at, value, v.Error()))
		}
	}
	return errs
}
