package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// key is that of the object that a request is about.
func (c *call) key() string {
	if c.k.namespaced {
		return c.q.Namespace + "/" + c.q.Name
	}
	return c.q.Name
}

// stored returns the object that a request is about. c.s.mu is held.
func (c *call) stored() (*entry, error) {
	if e, ok := c.k.table.items.Get(&entry{key: c.key()}); ok {
		return e, nil
	}
	return nil, apierrors.NewNotFound(c.k.gr(), c.q.Name)
}

func (c *call) get() error {
	c.s.mu.RLock()
	e, err := c.stored()
	c.s.mu.RUnlock()
	return c.entry(http.StatusOK, e, err)
}

// selection are the options of a list or a watch.
type selection struct {
	internalversion.ListOptions
	revision uint64 // resourceVersion; 0 if any will do
	all      bool   // every object is selected
}

func (c *call) selection() (s selection, err error) {
	if err := internalscheme.ParameterCodec.DecodeParameters(c.r.URL.Query(), metav1.SchemeGroupVersion, &s.ListOptions); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(&s.ListOptions, true)
	if errs := validation.ValidateListOptions(&s.ListOptions, true); len(errs) > 0 {
		return s, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if s.LabelSelector == nil {
		s.LabelSelector = labels.Everything()
	}
	if s.FieldSelector == nil {
		s.FieldSelector = fields.Everything()
	}
	known := c.k.fieldsOf(c.k.empty(c.q.Version))
	for _, r := range s.FieldSelector.Requirements() {
		if !known.Has(r.Field) {
			return s, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	s.all = s.LabelSelector.Empty() && s.FieldSelector.Empty()
	if s.ResourceVersion != "" {
		if s.revision, err = strconv.ParseUint(s.ResourceVersion, 10, 64); err != nil {
			return s, apierrors.NewBadRequest("Invalid value: " + strconv.Quote(s.ResourceVersion) + ": " + err.Error())
		}
	}
	return s, nil
}

// selected reports whether an object is selected; none is not.
func (c *call) selected(s *selection, e *entry) (bool, error) {
	if e == nil || s.all {
		return e != nil, nil
	}
	o, err := c.k.decode(e, c.q.Version)
	return err == nil && s.LabelSelector.Matches(labels.Set(o.GetLabels())) && s.FieldSelector.Matches(c.k.fieldsOf(o)), err
}

// page is where the next page of a list begins.
type page struct {
	Revision uint64 `json:"rv"`
	From     string `json:"start"`
}

func (c *call) list() error {
	sel, err := c.selection()
	if err != nil {
		return err
	}
	var p page
	switch {
	case sel.Continue != "":
		raw, err := base64.RawURLEncoding.DecodeString(sel.Continue)
		if err != nil || json.Unmarshal(raw, &p) != nil {
			return apierrors.NewBadRequest("continue key is not valid")
		}
	case sel.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		p.Revision = sel.revision
	}
	if err := c.s.reaches(max(sel.revision, p.Revision)); err != nil {
		return err
	}
	fetch, limit := 0, int(sel.Limit)
	if limit > 0 && sel.all {
		fetch = limit + 1
	}
	found, at, err := c.s.store.list(c.k.table, c.q.Namespace, p.From, p.Revision, fetch)
	if err != nil {
		return err
	}
	var items []runtime.Object
	m := metav1.ListMeta{ResourceVersion: strconv.FormatUint(at, 10)}
	for _, e := range found {
		if yes, err := c.selected(&sel, e); err != nil {
			return err
		} else if !yes {
			continue
		}
		if limit > 0 && len(items) == limit {
			raw, err := json.Marshal(page{at, e.key})
			if err != nil {
				return err
			}
			m.Continue = base64.RawURLEncoding.EncodeToString(raw)
			break
		}
		o, err := c.k.decode(e, c.q.Version)
		if err != nil {
			return err
		}
		items = append(items, o)
	}
	return c.answerList(items, m)
}

// answerList answers with a list of objects.
func (c *call) answerList(items []runtime.Object, m metav1.ListMeta) (err error) {
	gvk := c.k.at(c.q.Version)
	gvk.Kind += "List"
	var list runtime.Object = &unstructured.UnstructuredList{}
	if c.k.sample != nil {
		if list, err = scheme.Scheme.New(gvk); err != nil {
			return err
		}
	}
	list.GetObjectKind().SetGroupVersionKind(gvk)
	about, err := meta.ListAccessor(list)
	if err == nil {
		about.SetResourceVersion(m.ResourceVersion)
		about.SetContinue(m.Continue)
		err = meta.SetList(list, items)
	}
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, list)
}
