package k8swatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/manifest"
	"github.com/fenced/fenced/internal/policy"
)

// maxRequestKinds bounds how many kinds the authors of checks make us watch.
const maxRequestKinds = 16

// requestKind is a kind of remediation requests on one API server.
type requestKind struct {
	side *side
	kind schema.GroupKind
}

// requestKinds are those kinds of remediation requests that checks' templates
// name; they are watched only while a check does.
type requestKinds struct {
	moved chan struct{} // a check changed, or a store of requests was proven

	mu     sync.Mutex
	stores map[requestKind]*store
	ready  map[schema.GroupKind]bool
}

func (r *requestKinds) init() {
	r.moved = make(chan struct{}, 1)
	r.stores, r.ready = map[requestKind]*store{}, map[schema.GroupKind]bool{}
}

// keepRequests watches the kinds that checks name, until ctx ends.
func (c *Cluster) keepRequests(ctx context.Context) {
	for {
		if c.adjustRequests() {
			for _, s := range c.sides() {
				for _, st := range s.watched() {
					if st.checks {
						st.again()
					}
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-c.requests.moved:
		}
	}
}

// adjustRequests begins and ends watches as checks come and go. news says that
// a check can be judged now that could not before, or the other way round.
func (c *Cluster) adjustRequests() (news bool) {
	wanted := c.templates()
	r := &c.requests
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, st := range r.stores {
		if _, still := wanted[k]; !still {
			k.side.drop(st)
			delete(r.stores, k)
		}
	}
	ready := map[schema.GroupKind]bool{}
	for k, version := range wanted {
		st := r.stores[k]
		if st == nil && len(r.stores) < maxRequestKinds {
			st = &store{convert: from(manifest.Request), source: source{kind: k.kind.Kind, group: k.kind.Group,
				versions: []string{version}, namespace: c.requestsIn(k.side), request: true}}
			r.stores[k] = st
			k.side.add(st)
		}
		if st != nil {
			at, _ := st.state()
			other, twice := ready[k.kind] // of the other API
			ready[k.kind] = !at.IsZero() && (!twice || other)
		}
	}
	for kind, yes := range ready {
		news = news || yes != r.ready[kind]
	}
	r.ready = ready
	return news
}

// requestsIn is where requests are looked for: the Cluster API's are beside
// their Machines, medik8s' where their author put the template.
func (c *Cluster) requestsIn(s *side) string {
	if s == c.work {
		return metav1.NamespaceAll
	}
	return c.cfg.Management.Namespace
}

// templates are the kinds of requests that the checks of the view and those
// from files name, each with the version of a template.
func (c *Cluster) templates() map[requestKind]string {
	wanted := map[requestKind]string{}
	note := func(check *policy.Check, on *side) {
		for _, t := range templatesOf(check) {
			if kind, version := requestOf(t); kind.Group != "" {
				wanted[requestKind{on, kind}] = version
			}
		}
	}
	for _, s := range c.sides() {
		for _, st := range s.watched() {
			if st.checks {
				st.eachCheck(func(check *policy.Check) { note(check, s) })
			}
		}
	}
	for i := range c.cfg.Checks {
		note(&c.cfg.Checks[i], c.sideOf(c.cfg.Checks[i].APIVersion))
	}
	return wanted
}

func (s *store) eachCheck(visit func(*policy.Check)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.items {
		if check, ok := e.value.(*policy.Check); ok {
			visit(check)
		}
	}
}

func templatesOf(c *policy.Check) []policy.Template {
	var list []policy.Template
	if c.Template != nil {
		list = append(list, *c.Template)
	}
	for _, e := range c.Escalation {
		list = append(list, e.Template)
	}
	return list
}

// requestOf is the kind of requests that a template makes; none for a template
// of a kind that is no remediator's.
func requestOf(t policy.Template) (schema.GroupKind, string) {
	gv, err := schema.ParseGroupVersion(t.APIVersion)
	name, isTemplate := strings.CutSuffix(t.Kind, "Template")
	kind := schema.GroupKind{Group: gv.Group, Kind: name}
	if err != nil || !isTemplate || name == "" || !remediates(kind) {
		return schema.GroupKind{}, ""
	}
	return kind, gv.Version
}

// remediates says whether a kind can be one of remediation requests. What
// Kubernetes itself and the groups that we know have is something else: a Machine
// must not come and go from the view as somebody's request.
func remediates(kind schema.GroupKind) bool {
	switch kind.Group {
	case machineGroup, clusterGroup, hostGroup, medik8sGroup, configGroup:
		return false
	case fencedGroup:
		return kind.Kind == policy.FencedRemediationKind
	}
	return strings.Contains(kind.Group, ".") && !strings.HasSuffix(kind.Group, ".k8s.io")
}

// strange is a template of a check that is no remediator's; nil if there is none.
func strange(c *policy.Check) *policy.Template {
	for _, t := range templatesOf(c) {
		if kind, _ := requestOf(t); kind.Group == "" && c.Disabled == "" {
			return &t
		}
	}
	return nil
}

// gate makes a check Invalid while its requests cannot be read: a target whose
// remediation has been requested must not be taken for one without.
func (r *requestKinds) gate(check *policy.Check) *policy.Check {
	if check.Invalid != "" {
		return check
	}
	gated := *check
	if t := strange(check); t != nil {
		gated.Invalid = fmt.Sprintf("its template is a %s of %s, from which no remediator makes requests", t.Kind, t.APIVersion)
		return &gated
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range templatesOf(check) {
		if kind, _ := requestOf(t); kind.Group != "" && !r.ready[kind] {
			gated.Invalid = fmt.Sprintf("the remediation requests of kind %s have not been read: %s", kind, r.why(kind))
			return &gated
		}
	}
	return check
}

// why says what keeps a kind from being read; r.mu is held.
func (r *requestKinds) why(kind schema.GroupKind) string {
	why := "not yet"
	if len(r.stores) >= maxRequestKinds {
		why = fmt.Sprintf("checks name more than %d kinds", maxRequestKinds)
	}
	for k, st := range r.stores {
		if k.kind != kind {
			continue
		}
		why = "not yet"
		if _, problem := st.state(); problem != "" {
			why = problem
		}
	}
	return why
}

// watched are the stores of requests now.
func (r *requestKinds) watched() []*store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.stores))
}

// listNow reads all requests of a store past the cache.
func (s *store) listNow(ctx context.Context) ([]unstructured.Unstructured, error) {
	gvr, err := s.at(ctx)
	if errors.Is(err, errNotInstalled) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := s.side.api().dynamic.Resource(gvr).Namespace(s.namespace).List(ctx, metav1.ListOptions{Limit: pageSize})
	switch err = asList(list, err); {
	case unserved(err) && s.side.lacks(ctx, &s.source): // its definition went
		return nil, nil
	case err != nil:
		return nil, err
	}
	if list.GetContinue() != "" {
		return nil, fmt.Errorf("there are more than %d", pageSize)
	}
	return list.Items, nil
}
