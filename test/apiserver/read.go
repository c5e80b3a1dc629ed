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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// parameters decodes the parameters of a request into options.
func (c *call) parameters(into runtime.Object) error {
	if err := internalscheme.ParameterCodec.DecodeParameters(c.r.URL.Query(), metav1.SchemeGroupVersion, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (c *call) get(w http.ResponseWriter) error {
	e := c.s.store.get(c.k.table, c.key(c.q.Name))
	if e == nil {
		return apierrors.NewNotFound(c.k.gr(), c.q.Name)
	}
	return c.entry(w, http.StatusOK, e)
}

// selection are the options of a list or a watch.
type selection struct {
	internalversion.ListOptions
	revision uint64 // resourceVersion; 0 if there is none, or any will do
}

func (c *call) selection() (s selection, err error) {
	if err := c.parameters(&s.ListOptions); err != nil {
		return s, err
	}
	internalversion.SetListOptionsDefaults(&s.ListOptions, true)
	if errs := validation.ValidateListOptions(&s.ListOptions, true); len(errs) > 0 {
		return s, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if s.LabelSelector == nil {
		s.LabelSelector = labels.Everything()
	}
	if s.FieldSelector != nil {
		known := c.k.fieldsOf(c.k.empty(c.q.Version))
		for _, r := range s.FieldSelector.Requirements() {
			if !known.Has(r.Field) {
				return s, apierrors.NewBadRequest("field label not supported: " + r.Field)
			}
		}
		if s.FieldSelector.Empty() {
			s.FieldSelector = nil
		}
	}
	if s.ResourceVersion != "" {
		if s.revision, err = strconv.ParseUint(s.ResourceVersion, 10, 64); err != nil {
			return s, apierrors.NewBadRequest("Invalid value: " + strconv.Quote(s.ResourceVersion) + ": " + err.Error())
		}
	}
	return s, nil
}

// all reports whether every object is selected.
func (s *selection) all() bool { return s.LabelSelector.Empty() && s.FieldSelector == nil }

// selects reports whether an object is selected; none is not.
func (c *call) selects(s *selection, e *entry) (bool, error) {
	if e == nil || s.all() {
		return e != nil, nil
	}
	o, err := c.k.decode(e, c.q.Version)
	if err != nil {
		return false, err
	}
	return s.LabelSelector.Matches(labels.Set(o.GetLabels())) && (s.FieldSelector == nil || s.FieldSelector.Matches(c.k.fieldsOf(o))), nil
}

// token is where the next page of a list begins. At revision -1 it is the list of now.
type token struct {
	Revision int64  `json:"rv"`
	From     string `json:"start"`
}

func (t token) encode() string {
	raw, _ := json.Marshal(t) // a number and a string
	return base64.RawURLEncoding.EncodeToString(raw)
}

func (c *call) list(w http.ResponseWriter) error {
	sel, err := c.selection()
	if err != nil {
		return err
	}
	var page token
	if sel.Continue != "" {
		raw, err := base64.RawURLEncoding.DecodeString(sel.Continue)
		if err == nil {
			err = json.Unmarshal(raw, &page)
		}
		if err != nil {
			return apierrors.NewBadRequest("continue key is not valid: " + err.Error())
		}
	} else if sel.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		page.Revision = int64(sel.revision)
	} else if at := c.s.now(); sel.revision > at {
		return tooLarge(sel.revision, at)
	}
	fetch, limit := 0, int(sel.Limit)
	if limit > 0 && sel.all() {
		fetch = limit + 1
	}
	found, at, err := c.s.store.list(c.k.table, c.q.Namespace, page.From, uint64(max(page.Revision, 0)), fetch)
	if err != nil {
		if sel.Continue != "" && apierrors.IsResourceExpired(err) {
			return expired(page)
		}
		return err
	}
	var items []runtime.Object
	next := ""
	for _, e := range found {
		if yes, err := c.selects(&sel, e); err != nil {
			return err
		} else if !yes {
			continue
		}
		if limit > 0 && len(items) == limit {
			next = token{int64(at), e.key}.encode()
			break
		}
		o, err := c.k.decode(e, c.q.Version)
		if err != nil {
			return err
		}
		items = append(items, o)
	}
	return c.answerList(w, items, metav1.ListMeta{ResourceVersion: strconv.FormatUint(at, 10), Continue: next})
}

// expired is the answer to the rest of a list whose version is forgotten. Its token leads to the rest as it is now.
func expired(page token) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, " +
		"or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects " +
		"that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	err.ErrStatus.Continue = token{-1, page.From}.encode()
	return err
}

// answerList answers with a list of objects.
func (c *call) answerList(w http.ResponseWriter, items []runtime.Object, m metav1.ListMeta) error {
	var list runtime.Object = &unstructured.UnstructuredList{}
	if c.k.sample != nil {
		made, err := scheme.Scheme.New(c.k.gvk(c.q.Version).GroupVersion().WithKind(c.k.listKind))
		if err != nil {
			return err
		}
		list = made
	} else {
		list.GetObjectKind().SetGroupVersionKind(c.k.gvk(c.q.Version).GroupVersion().WithKind(c.k.listKind))
	}
	if err := meta.SetList(list, items); err != nil {
		return err
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	about.SetResourceVersion(m.ResourceVersion)
	about.SetContinue(m.Continue)
	raw, err := runtime.Encode(c.k.codec(c.out.mediaType, c.q.Version), list)
	if err == nil {
		c.out.raw(w, http.StatusOK, raw)
	}
	return err
}
