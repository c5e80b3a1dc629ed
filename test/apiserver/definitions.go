package apiserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

const definitionGroup = "apiextensions.k8s.io"

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Group    string
	Scope    string
	Names    struct{ Plural, Singular, Kind, ListKind string }
	Versions []struct {
		Name            string
		Served, Storage bool
		Schema          struct {
			OpenAPIV3Schema *spec.Schema
		}
		Subresources struct{ Status *struct{} }
	}
}

// definitionRules: a definition is Established as soon as it is written. On a real server that takes a moment.
var definitionRules = rules{
	onCreate: establish,
	onUpdate: func(now, _ object) { establish(now) },
	validate: func(o object) field.ErrorList {
		if _, err := kindDefined(o); err != nil {
			return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
		}
		return nil
	},
}

func establish(o object) {
	var conditions []any
	for _, kind := range []string{"NamesAccepted", "Established"} {
		conditions = append(conditions, map[string]any{
			"type": kind, "status": "True", "reason": "Accepted", "message": "the kind is served", "lastTransitionTime": o.GetCreationTimestamp().UTC().Format("2006-01-02T15:04:05Z"),
		})
	}
	o.(*unstructured.Unstructured).Object["status"] = map[string]any{"conditions": conditions}
}

// kindDefined is the kind that a definition defines.
func kindDefined(o object) (*kind, error) {
	var d struct{ Spec definition }
	raw, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	if err != nil {
		return nil, fmt.Errorf("read the definition: %w", err)
	}
	names := d.Spec.Names
	k := &kind{
		group: d.Spec.Group, resource: names.Plural, kind: names.Kind, listKind: names.ListKind, singular: names.Singular,
		namespaced: d.Spec.Scope == "Namespaced", schemas: map[string]*customSchema{}, rules: rules{onUpdate: countGeneration},
	}
	if k.listKind == "" {
		k.listKind = k.kind + "List"
	}
	if k.singular == "" {
		k.singular = strings.ToLower(k.kind)
	}
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		if v.Subresources.Status != nil {
			k.status, k.rules = true, rules{onCreate: dropStatus, onUpdate: keepStatus, onStatus: keepAllButStatus}
		}
		if k.schemas[v.Name], err = newSchema(v.Schema.OpenAPIV3Schema); err != nil {
			return nil, fmt.Errorf("version %s: %w", v.Name, err)
		}
		if k.versions = append(k.versions, v.Name); v.Storage {
			slices.Reverse(k.versions)
		}
	}
	if len(k.versions) == 0 {
		return nil, fmt.Errorf("no version is served")
	}
	return k, nil
}

// define serves the kind of a definition from now on. s.mu is held.
func (s *Server) define(o object) error {
	k, err := kindDefined(o)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	k.table = newTable()
	k.table.floor = s.revision
	if before := s.kinds[k.gr()]; before != nil {
		k.table = before.table
	}
	s.kinds[k.gr()] = k
	return nil
}

// undefine deletes the objects of the kind of a definition, and serves it no more. s.mu is held.
func (s *Server) undefine(o object) {
	k, err := kindDefined(o)
	if err != nil || s.kinds[k.gr()] == nil {
		return
	}
	k = s.kinds[k.gr()]
	var all []*entry
	k.table.items.Ascend(func(e *entry) bool { all = append(all, e); return true })
	for _, e := range all {
		if last, err := k.decode(e, k.versions[0]); err == nil {
			_ = s.put(k.table, e.key, nil, last, k.encode) // it was encoded by the same before
		}
	}
	delete(s.kinds, k.gr())
	close(k.table.news)
	k.table.news = nil
}

// The rules of custom resources.

func content(o object) map[string]any { return o.(*unstructured.Unstructured).Object }

func dropStatus(o object) { delete(content(o), "status") }

func keepStatus(now, was object) {
	if delete(content(now), "status"); content(was)["status"] != nil {
		content(now)["status"] = content(was)["status"]
	}
	countGeneration(now, was)
}

// countGeneration counts the changes of all but the metadata.
func countGeneration(now, was object) {
	a, b := runtime.DeepCopyJSON(content(now)), runtime.DeepCopyJSON(content(was))
	delete(a, "metadata")
	delete(b, "metadata")
	if !equality.Semantic.DeepEqual(a, b) {
		now.SetGeneration(was.GetGeneration() + 1)
	}
}

func keepAllButStatus(now, was object) {
	status, ok := content(now)["status"]
	now.(*unstructured.Unstructured).Object = runtime.DeepCopyJSON(content(was))
	if delete(content(now), "status"); ok {
		content(now)["status"] = status
	}
}

// customSchema is the schema of one version of a custom resource.
type customSchema struct {
	root      *spec.Schema
	validator *validate.SchemaValidator
}

func newSchema(root *spec.Schema) (*customSchema, error) {
	if root == nil {
		return nil, fmt.Errorf("it has no schema")
	}
	if err := normalise(root); err != nil {
		return nil, err
	}
	return &customSchema{root, validate.NewSchemaValidator(root, nil, "", strfmt.Default)}, nil
}

func is(s *spec.Schema, extension string) bool {
	yes, _ := s.Extensions.GetBool(extension)
	return yes
}

// normalise makes a schema of a definition one of OpenAPI, as apiextensions does.
func normalise(s *spec.Schema) error {
	if is(s, "x-kubernetes-int-or-string") {
		s.Type = spec.StringOrArray{"integer", "string"}
	}
	if s.Default != nil { // its numbers become integers where they are
		raw, err := json.Marshal(s.Default)
		if err == nil {
			err = utiljson.Unmarshal(raw, &s.Default)
		}
		if err != nil {
			return fmt.Errorf("read a default: %w", err)
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
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			if s.Items != nil && s.Items.Schema != nil {
				shape(item, s.Items.Schema, is(s.Items.Schema, "x-kubernetes-embedded-resource"))
			}
		}
	case map[string]any:
		for key, child := range v {
			p, known := s.Properties[key]
			more := s.AdditionalProperties
			switch {
			case resource && (key == "apiVersion" || key == "kind" || key == "metadata"):
			case known && child == nil && p.Default != nil && !p.Nullable:
				delete(v, key)
			case known:
				shape(child, &p, is(&p, "x-kubernetes-embedded-resource"))
			case more != nil && more.Schema != nil:
				shape(child, more.Schema, is(more.Schema, "x-kubernetes-embedded-resource"))
			case more == nil && !is(s, "x-kubernetes-preserve-unknown-fields"):
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
}

// check returns what is wrong with an object, in the words of apiextensions.
func (c *customSchema) check(o object) (errs field.ErrorList) {
	for _, err := range c.validator.Validate(content(o)).Errors {
		v, ok := err.(*openapierrors.Validation)
		if !ok {
			errs = append(errs, field.Invalid(nil, "", err.Error()))
			continue
		}
		var at *field.Path
		if name := strings.TrimPrefix(v.Name, "."); name != "" {
			at = field.NewPath(name)
		}
		value := v.Value
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
			errs = append(errs, field.NotSupported(at, v.Value, allowed))
		case openapierrors.InvalidTypeCode:
			errs = append(errs, field.TypeInvalid(at, value, v.Error()))
		default:
			errs = append(errs, field.Invalid(at, value, v.Error()))
		}
	}
	return errs
}
