package view

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
)

// maxRequestKinds limits how many kinds the authors of checks in namespaces can make fenced
// watch.
const maxRequestKinds = 16

// notYet is why the requests of a kind that is watched since a moment ago are not read.
const notYet = "not yet"

// requestKind is a kind of remediation requests on one API server.
type requestKind struct {
	side *side
	kind schema.GroupKind
}

// requestKinds are the kinds of remediation requests that checks' templates name, fenced's own and Metal3's.
// Those of other remediators are watched only while a check names them.
type requestKinds struct {
	changed chan struct{} // a check changed, or a store of requests was proven

	// files are the checks from files since a reload; nil: those of the Config.
	files atomic.Pointer[[]policy.Check]

	mu     sync.Mutex
	stores map[requestKind]*store
	// namespaces are those where the requests of a kind count in the view; nil: in all.
	namespaces map[requestKind]map[string]bool
	// unread are the reasons why the requests of the kinds that are watched are not read; empty: they are.
	unread map[schema.GroupKind]string
	// full: no more kinds are watched because checks in namespaces name them.
	full bool
}

func (r *requestKinds) init() {
	r.changed = make(chan struct{}, 1)
	r.stores, r.namespaces, r.unread = map[requestKind]*store{}, map[requestKind]map[string]bool{}, map[schema.GroupKind]string{}
}

// keepRequests watches the kinds that checks name, until ctx ends.
func (c *Cache) keepRequests(ctx context.Context) {
	for {
		if c.adjustRequests() {
			for _, st := range c.stores() {
				if st.checks {
					st.journalAll()
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-c.requests.changed:
		}
	}
}

// adjustRequests starts and stops watches as checks change. news means that a check can now be evaluated that could not
// before, or the reverse, or that it cannot for another reason.
func (c *Cache) adjustRequests() (news bool) {
	wanted := c.templates()
	r := &c.requests
	r.mu.Lock()
	defer r.mu.Unlock()
	chosen, full := chosenKinds(wanted, c.cfg.rules())
	for k, st := range r.stores {
		if !chosen[k] {
			k.side.drop(st)
			delete(r.stores, k)
			delete(r.namespaces, k)
		}
	}
	unread := map[schema.GroupKind]string{}
	for k, wish := range wanted {
		st := r.stores[k]
		if st == nil && chosen[k] {
			st = &store{convert: c.cfg.convertRequest(k.side.IsApart()), source: source{Resource: client.Resource{Kind: k.kind.Kind, Group: k.kind.Group,
				Versions: []string{wish.version}, AnyVersion: true}, namespace: c.requestsIn(k.side), request: true}}
			switch k.kind { // as of all kinds that are always watched
			case client.OwnRequests:
				st.gvr = client.RequestGVR
			case client.Metal3Requests:
				st.gvr = k.kind.WithVersion(wish.version).GroupVersion().WithResource("metal3remediations")
			}
			r.stores[k] = st
			k.side.add(st)
		}
		if st != nil {
			r.setNamespaces(k, wish)
			if unread[k.kind] == "" { // or on the other API it is not
				unread[k.kind] = st.unread()
			}
		}
	}
	news = full != r.full || !maps.Equal(unread, r.unread)
	r.unread, r.full = unread, full
	return news
}

// unread is the reason why the requests of a store are not read, or an empty string.
func (s *store) unread() string {
	switch at, problem := s.state(); {
	case !at.IsZero():
		return ""
	case problem != "":
		return problem
	}
	return notYet
}

// requestsIn is the namespace of requests: the Cluster API's are in that of their
// Machines, medik8s' in that of their template.
func (c *Cache) requestsIn(s *side) string {
	if s == c.work {
		return metav1.NamespaceAll
	}
	return c.cfg.Management.Namespace
}

// CarriesOut reports whether fenced carries out the requests of a kind.
func (c *Cache) CarriesOut(kind schema.GroupKind) bool {
	return kind == client.OwnRequests || c.cfg.Metal3Remediations && kind == client.Metal3Requests
}

// wish is a kind of requests that is to be watched.
type wish struct {
	version string
	// always: whatever the authors of checks in namespaces name. An administrator named the kind.
	always bool
	// namespaces are those whose checks name it.
	namespaces map[string]bool
}

// templates returns fenced's own kind of requests and Metal3's, and those that the checks of the
// view and those from files name, each with the version of a template.
func (c *Cache) templates() map[requestKind]wish {
	wanted := map[requestKind]wish{}
	for _, s := range c.sides() {
		wanted[requestKind{s, client.OwnRequests}] = wish{version: client.RequestGVR.Version, always: true}
	}
	// Whoever makes a Metal3Remediation needs no check here: CAPM3 carries it out wherever it is. Those that fenced
	// carries out are on the API of the Cluster API's Machines. // I22
	for _, s := range c.sides() {
		if s == c.manage || !c.cfg.Metal3Remediations {
			wanted[requestKind{s, client.Metal3Requests}] = wish{version: "v1beta1", always: true}
		}
	}
	note := func(check *policy.Check, on *side) {
		for _, t := range check.Templates() {
			if kind, version := client.RequestOf(t); kind.Group != "" {
				k := requestKind{on, kind}
				w := wanted[k]
				if w.namespaces == nil {
					w.namespaces = map[string]bool{}
				}
				w.version, w.always, w.namespaces[check.Namespace] = version, w.always || check.Administrators(), true
				wanted[k] = w
			}
		}
	}
	for _, st := range c.stores() {
		if st.checks {
			st.eachCheck(func(check *policy.Check) { note(check, st.side) })
		}
	}
	for i := range c.cfg.Checks {
		note(&c.cfg.Checks[i], c.sideOf(c.cfg.Checks[i].APIVersion))
		if c.cfg.Checks[i].Kind == policy.FencePolicyKind && !c.cfg.Checks[i].SelectsNodes { // its Machines may be there
			note(&c.cfg.Checks[i], c.manage)
		}
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

// foreignTemplate returns a template of a check that cannot be a remediator's;
// nil if there is none.
func foreignTemplate(c *policy.Check) *policy.Template {
	for _, t := range c.Templates() {
		if kind, _ := client.RequestOf(t); kind.Group == "" && c.Disabled == "" {
			return &t
		}
	}
	return nil
}

// Gate makes a check Invalid while its requests cannot be read.
func (c *Cache) Gate(check *policy.Check) *policy.Check { return c.requests.gateCheck(check) }

// Unread returns the reason why the requests of a check cannot be read, or an empty string.
func (c *Cache) Unread(check *policy.Check) string { return c.requests.whyUnread(check) }

// gateCheck makes a check Invalid while its requests cannot be read: a target
// whose remediation has been requested must not look like one without.
func (r *requestKinds) gateCheck(check *policy.Check) *policy.Check {
	if check.Invalid != "" {
		return check
	}
	why := r.whyUnread(check)
	if why == "" {
		return check
	}
	gated := *check
	gated.Invalid = why
	return &gated
}

// whyUnread returns the reason why the requests of a check cannot be read, or an empty string. It does not ask whether
// the check is Invalid: its own controller may act on a check that only fenced rejects. // I22
func (r *requestKinds) whyUnread(check *policy.Check) string {
	if t := foreignTemplate(check); t != nil {
		return fmt.Sprintf("its template is a %s of %s, from which no remediator makes requests", t.Kind, t.APIVersion)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range check.Templates() {
		kind, _ := client.RequestOf(t)
		why, watched := r.unread[kind]
		switch {
		case !watched && r.full:
			why = fmt.Sprintf("checks name more than %d kinds", maxRequestKinds)
		case !watched:
			why = notYet
		}
		if kind.Group != "" && why != "" {
			return fmt.Sprintf("the remediation requests of kind %s have not been read: %s", kind, why)
		}
	}
	return ""
}

// watched returns the current stores of requests.
func (r *requestKinds) watched() []*store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.stores))
}

// listNow lists the requests of a store in a namespace with an uncached read.
func (s *store) listNow(ctx context.Context, namespace string) ([]unstructured.Unstructured, error) {
	if s.namespace != "" && s.namespace != namespace {
		return nil, nil
	}
	gvr, err := s.at(ctx)
	if errors.Is(err, client.ErrNotInstalled) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := s.side.API().Dynamic.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: client.PageSize})
	switch err = client.CheckList(list, err); {
	case client.MayBeUnserved(err) && s.side.IsNotServed(ctx, s.Resource): // its CRD was deleted
		return nil, nil
	case err != nil:
		return nil, err
	}
	if list.GetContinue() != "" {
		return nil, fmt.Errorf("there are more than %d", client.PageSize)
	}
	return list.Items, nil
}

// A check of a namespace concerns the Machines there. The controllers of OpenShift and of the Cluster
// API make its requests in that namespace, that of medik8s in the one of the template. So a kind that
// only such checks name is one of requests there, and for those Machines: whoever may write a check
// could name any kind, also one of which every Machine owns an object. // I2

// counts reports whether the requests of a kind count in a namespace. Without a check that names the
// kind nobody knows, so they do.
func (w wish) counts(namespace string) bool {
	return w.always || w.namespaces == nil || w.namespaces[namespace]
}

// setNamespaces notes where the requests of a kind count in the view. If that changed, they are told again:
// what counts no longer goes. r.mu is held.
func (r *requestKinds) setNamespaces(k requestKind, w wish) {
	var now map[string]bool
	if !w.always {
		now = w.namespaces
	}
	if before, known := r.namespaces[k]; known && maps.Equal(before, now) {
		return
	}
	r.namespaces[k] = now
	r.stores[k].journalAll()
}

// counts reports whether requests of a kind in a namespace count in the view.
func (r *requestKinds) counts(k requestKind, namespace string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := r.namespaces[k]
	return in == nil || in[namespace]
}

// Place is a namespace in which requests of a kind may be for a target.
type Place struct {
	Kind            schema.GroupKind
	Namespace       string
	OnManagementAPI bool // on a separate one
	// Key names what List reads, for those who share their reads.
	Key string
	// List reads the requests there without the cache.
	List func(context.Context) ([]unstructured.Unstructured, error)
}

// RequestPlaces is where requests may be for a target, by the checks as they are now: what is told of the view may
// follow later. A Machine that is gone counts, too: its remediator may still be at work. Kinds that were never
// read have no place: Unread says so of the checks that name them. Metal3's, which no check has to name, have one: it
// cannot be read then, unless the kind is not installed. // I22
func (c *Cache) RequestPlaces(machine *policy.Machine, node *policy.Node) (places []Place) {
	var checks []*policy.Check
	c.EachCheck(func(check *policy.Check) { checks = append(checks, check) })
	rules, wishes := c.cfg.rules(), c.templates()
	for _, st := range c.requests.watched() {
		k := requestKind{st.side, schema.GroupKind{Group: st.Group, Kind: st.Kind}}
		if at, _ := st.state(); at.IsZero() && k.kind != client.Metal3Requests {
			continue
		}
		spaces, w := rules.RequestSpaces(checks, k.side.IsApart(), machine, node), wishes[k]
		// What anybody writes elsewhere is no request for the target, and so many of them that a list has no end delay nothing.
		if machine == nil || c.sideOf(machine.APIVersion) != k.side || !w.counts(machine.Namespace) {
			spaces = slices.DeleteFunc(spaces, func(namespace string) bool { return !w.counts(namespace) })
		}
		for _, namespace := range spaces {
			places = append(places, st.place(namespace))
		}
	}
	return places
}

func (s *store) place(namespace string) Place {
	return Place{Kind: schema.GroupKind{Group: s.Group, Kind: s.Kind}, Namespace: namespace, OnManagementAPI: s.side.IsApart(),
		Key:  fmt.Sprintf("requests %p %s", s, namespace),
		List: func(ctx context.Context) ([]unstructured.Unstructured, error) { return s.listNow(ctx, namespace) }}
}

// EachCheck visits the checks of the view, and those from files.
func (c *Cache) EachCheck(visit func(*policy.Check)) {
	for _, st := range c.stores() {
		if st.checks {
			st.eachCheck(visit)
		}
	}
	files := c.fileChecks()
	for i := range files {
		visit(&files[i])
	}
}

// ReplaceChecks makes these the checks from files. The kinds that those of the start name are watched all the same: a policy that comes back
// must find their requests read. // I22
func (c *Cache) ReplaceChecks(files []policy.Check) { c.requests.files.Store(&files) }

// fileChecks are the checks from files.
func (c *Cache) fileChecks() []policy.Check {
	if files := c.requests.files.Load(); files != nil {
		return *files
	}
	return c.cfg.Checks
}

// author is a namespace on an API server whose checks name kinds of requests.
type author struct {
	side      *side
	namespace string
}

// chosenKinds returns the kinds that are watched: all that an administrator named, and as many as there is room for of those that
// only checks in namespaces name; full says that there is no more room. The namespaces have their turns, first those that
// clusters[] names: whoever may write checks in one takes the places of no other. // I18
func chosenKinds(wanted map[requestKind]wish, rules *policy.Rules) (chosen map[requestKind]bool, full bool) {
	chosen = map[requestKind]bool{}
	named := map[author][]requestKind{}
	for k, w := range wanted {
		if chosen[k] = w.always; w.always {
			continue
		}
		for namespace := range w.namespaces {
			named[author{k.side, namespace}] = append(named[author{k.side, namespace}], k)
		}
	}
	free := maxRequestKinds
	for _, first := range []bool{true, false} {
		turns := slices.DeleteFunc(slices.SortedFunc(maps.Keys(named), author.compare), func(a author) bool { return a.isTrusted(rules) != first })
		for _, a := range turns {
			slices.SortFunc(named[a], func(x, y requestKind) int { return strings.Compare(x.kind.String(), y.kind.String()) })
		}
		for at := 0; len(turns) > 0; at++ {
			turns = slices.DeleteFunc(turns, func(a author) bool { return at == len(named[a]) })
			for _, a := range turns {
				if k := named[a][at]; !chosen[k] && free > 0 {
					chosen[k] = true
					free--
				}
			}
		}
	}
	return chosen, free == 0
}

// isTrusted reports whether the administrator named the namespace as one of the Machines of the cluster.
func (a author) isTrusted(rules *policy.Rules) bool {
	if a.side.IsApart() {
		return rules.TrustsChecks(policy.ClusterAPIV1Beta2, a.namespace)
	}
	return rules.TrustsChecks("", a.namespace)
}

// compare orders authors independent of the order of the checks; those of the cluster come first.
func (a author) compare(b author) int {
	switch {
	case a.side == b.side:
		return strings.Compare(a.namespace, b.namespace)
	case b.side.IsApart():
		return -1
	}
	return 1
}
