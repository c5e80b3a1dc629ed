package apiserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
)

// mutant is a server that lacks some behaviour, and the rows that must notice it, by the beginning of their names.
type mutant struct {
	name    string
	rules   func(*Server)         // changed before the first request
	request func(r *http.Request) // changed on its way to the server
	answer  func(text string) string
	rows    []string
	within  time.Duration // that a row may take to notice it; 3 s if zero
}

// ofKind changes the rules of one kind.
func ofKind(group, resource string, change func(*kind)) func(*Server) {
	return func(s *Server) {
		s.mu.Lock()
		defer s.mu.Unlock()
		change(s.kinds[schema.GroupResource{Group: group, Resource: resource}])
	}
}

// ignoring is a server that does not know some parameters.
func ignoring(names ...string) func(*http.Request) {
	return func(r *http.Request) {
		q := r.URL.Query()
		for _, n := range names {
			q.Del(n)
		}
		r.URL.RawQuery = q.Encode()
	}
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) {
		if r.Header.Get(name) != "" {
			r.Header.Set(name, value)
		}
	}
}

// body changes the text of bodies.
func body(was, is string) func(*http.Request) {
	pattern := regexp.MustCompile(was)
	return func(r *http.Request) {
		raw, _ := readAll(r)
		setBody(r, pattern.ReplaceAllString(raw, is))
	}
}

// says changes the text of answers.
func says(was, is string) func(string) string {
	pattern := regexp.MustCompile(was)
	return func(text string) string { return pattern.ReplaceAllString(text, is) }
}

var counter atomic.Int64

var mutants = []mutant{
	{name: "says another version", answer: says(`v1\.36\.3`, "v1.0.0"), rows: []string{"the version is"}},
	{name: "discovers another resource", answer: says(`"widgets"`, `"gadgets"`), rows: []string{"discovery lists"}},
	{name: "names another object", answer: says("nobody", "somebody"), rows: []string{"a missing object"}},
	{name: "has nothing in its cache", request: func(r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Query().Get("resourceVersion") == "0" {
			r.URL.Path += "-of-old"
		}
	}, rows: []string{"an object may be read as"}},
	{name: "answers with a Status for a missing kind", answer: says("404 page not found", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`), rows: []string{"a missing kind"}},
	{name: "has no active namespaces", answer: says(`"Active"`, `"Terminating"`), rows: []string{"the cluster has the namespaces"}},
	{name: "knows JSON alone", request: header("Accept", "application/json"), rows: []string{"an object is the same in protobuf", "a watch is in protobuf", "custom resources are in JSON"}},
	{name: "gives lists an old version", answer: says(`"metadata":\{"resourceVersion":"\d+"`, `"metadata":{"resourceVersion":"1"`), rows: []string{"a list has the version"}},
	{name: "lists all namespaces", request: func(r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/widgets") {
			r.URL.Path = "/apis/conformance.fenced.io/v1/widgets"
		}
	}, rows: []string{"a list of one namespace"}},
	{name: "goes on with the list of now", request: func(r *http.Request) {
		q, p := r.URL.Query(), page{}
		if raw, err := base64.RawURLEncoding.DecodeString(q.Get("continue")); err == nil && json.Unmarshal(raw, &p) == nil {
			p.Revision = 0
			raw, _ = json.Marshal(p)
			q.Set("continue", base64.RawURLEncoding.EncodeToString(raw))
			r.URL.RawQuery = q.Encode()
		}
	}, rows: []string{"the pages of a list"}},
	{name: "ignores versions of lists", request: ignoring("resourceVersion", "resourceVersionMatch"), rows: []string{"a list can be of an exact", "a list that may not be older", "options of a list"}},
	{name: "ignores labels", request: ignoring("labelSelector"), rows: []string{"labels select"}},
	{name: "ignores fields", request: ignoring("fieldSelector"), rows: []string{"fields select", "what an Event", "the name selects"}},

	{name: "takes the client's UID", rules: ofKind("", "nodes", func(k *kind) { k.onCreate = func(o object) { o.SetUID("mine") } }), rows: []string{"a created object gets"}},
	{name: "generates other names", answer: says(`"made-[a-z0-9]{5}"`, `"made"`), rows: []string{"a name is generated"}},
	{name: "takes what exists for a conflict", answer: says(`AlreadyExists`, `Conflict`), rows: []string{"an object is created once"}},
	{name: "takes versions of new objects", request: body(`"?resourceVersion`, `"x`), answer: says("resourceVersion should not", "it may"), rows: []string{"a new object has no version"}},
	{name: "takes what is invalid for a bad request", answer: says(`"reason":"Invalid"`, `"reason":"BadRequest"`), rows: []string{"a name must be valid", "a streamed list says"}},
	{name: "needs no namespaces", answer: says(`namespaces \\"nowhere\\" not found`, "made it"), rows: []string{"the namespace must exist"}},
	{name: "takes a bad request for an invalid one", answer: says(`"reason":"BadRequest"`, `"reason":"Invalid"`), rows: []string{"the namespace and the name", "what is not the kind", "a custom resource is served"}},
	{name: "does not say why there is a conflict", answer: says("the object has been modified", "it has changed"), rows: []string{"an update of an old version"}},
	{name: "needs a version for each update", rules: ofKind("", "nodes", func(k *kind) { k.unconditionalUpdate = false }), rows: []string{"an update without a version"}},
	{name: "counts writes that change nothing", rules: ofKind("", "nodes", func(k *kind) {
		k.validate = stamp
	}), rows: []string{"an update that changes nothing"}},
	{name: "updates the object of another UID", answer: says("Precondition failed", "done"), rows: []string{"an update is of the object"}},
	{name: "has no status of Nodes", rules: ofKind("", "nodes", func(k *kind) { k.status = false }), rows: []string{"the status is written"}},
	{name: "removes nothing", request: body(`"drop":null`, `"drop":"1"`), rows: []string{"a merge patch"}},
	{name: "ignores the version in a patch", request: body(`"resourceVersion":"\d+",`, ""), rows: []string{"a patch with an old version"}},
	{name: "merges without a strategy", request: func(r *http.Request) {
		if r.Header.Get("Content-Type") == string(types.StrategicMergePatchType) {
			r.Header.Set("Content-Type", string(types.MergePatchType))
		}
	}, rows: []string{"a strategic patch", "custom resources have no strategic"}},
	{name: "tests nothing", request: body(`"op":"test"`, `"op":"add"`), rows: []string{"a JSON patch"}},
	{name: "takes any Event", rules: ofKind("", "events", func(k *kind) { k.validate = nil }), rows: []string{"an Event is in"}},
	{name: "takes any Lease", rules: ofKind("coordination.k8s.io", "leases", func(k *kind) { k.validate = nil }), rows: []string{"a Lease lasts"}},
	{name: "forgets owners", answer: says(`"ownerReferences":\[[^\]]*\],?`, ""), rows: []string{"a Lease is renewed"}},
	{name: "keeps the text of Secrets", rules: ofKind("", "secrets", func(k *kind) { k.onCreate = nil }), rows: []string{"the text of a Secret"}},
	{name: "takes the status of new pods", rules: ofKind("", "pods", func(k *kind) { k.onCreate = nil }), rows: []string{"a new pod"}},
	{name: "takes the status of new VolumeAttachments", rules: ofKind("storage.k8s.io", "volumeattachments", func(k *kind) { k.onCreate = nil }), rows: []string{"a VolumeAttachment"}},

	{name: "ignores options of deletions", request: func(r *http.Request) {
		if r.Method == http.MethodDelete {
			setBody(r, "")
		}
	}, within: time.Minute, rows: []string{"a deletion is of the UID", "fenced's view stays"}},
	{name: "answers a deletion with the object", rules: ofKind("", "nodes", func(k *kind) { k.returnsDeleted = true }), rows: []string{"a deletion is answered"}},
	{name: "has no finalizers", answer: says(`"deletionTimestamp":"[^"]*",`, ""), rows: []string{"a finalizer keeps"}},
	{name: "deletes pods at once", rules: ofKind("", "pods", func(k *kind) { k.grace = nil }), rows: []string{"a pod on a node"}},
	{name: "fills namespaces that go", answer: says("NamespaceTerminating", "Other"), rows: []string{"a namespace that is being deleted"}},

	{name: "calls every change an addition", answer: says(`"type":"MODIFIED"`, `"type":"ADDED"`), rows: []string{"a watch sends every change"}},
	{name: "does not tell what is selected no more", answer: says(`"type":"DELETED"`, `"type":"MODIFIED"`), rows: []string{"an object that is selected no more", "an informer"}},
	{name: "does not end streamed lists", answer: says("k8s.io/initial-events-end", "other"), rows: []string{"a streamed list ends"}},
	{name: "begins each watch without what there is", request: func(r *http.Request) {
		if r.URL.Query().Get("watch") != "" && r.URL.Query().Get("resourceVersion") == "" {
			r.URL.RawQuery += "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
		}
	}, rows: []string{"a watch without a version"}},
	{name: "sends no bookmarks", request: ignoring("allowWatchBookmarks"), rows: []string{"a watch ends at its time"}},
	{name: "forgets nothing", rules: ofKind("conformance.fenced.io", "widgets", func(k *kind) { k.table.history[0].revision = 0 }), rows: []string{"a watch of a version"}},

	{name: "has no schemas", rules: ofKind("conformance.fenced.io", "widgets", func(k *kind) { k.schemas = nil }), rows: []string{"the schema sets", "the schema refuses"}},
	{name: "has no status of custom resources", rules: ofKind("conformance.fenced.io", "widgets", func(k *kind) { k.status = false }), rows: []string{"the status and the spec"}},
	{name: "establishes nothing", answer: says(`"Established"`, `"Accepted"`), rows: []string{"a kind comes"}},

	{name: "does not say what is forbidden", answer: says(`cannot \w+ resource`, "may not"), rows: []string{"a user without a right"}},
	{name: "denies what is allowed", answer: says(`"allowed":true`, `"allowed":false`), rows: []string{"a user may ask"}},
	{name: "lets in who has no right", answer: says(`"reason":"(Forbidden|Unauthorized)"`, `"reason":"NotFound"`), rows: []string{"a right is of a verb", "who shows no valid"}},
	{name: "has another time", rules: func(s *Server) { s.opts.Clock = func() time.Time { return time.Now().Add(time.Hour) } }, rows: []string{"every answer has the time"}},
}

// mutated starts a stand-in, and a proxy before it that changes what is said to it and what it says.
func mutated(t *testing.T, m mutant) *api {
	t.Helper()
	var s *Server
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.request != nil {
			m.request(r)
		}
		if m.answer != nil { // it changes text
			r.Header.Set("Accept", "application/json")
			w = &changed{w, m.answer}
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	return standIn(t, func(started *Server) {
		if s = started; m.rules != nil {
			m.rules(s)
		}
	}, func(c *rest.Config) {
		c.Host, c.CAData = proxy.URL, ca
	})
}

// changed changes the text of an answer. Each event of a watch, and each other answer, is written in one piece.
type changed struct {
	http.ResponseWriter
	how func(string) string
}

func (c *changed) WriteHeader(code int) {
	c.Header().Set("Content-Type", "application/json")
	c.ResponseWriter.WriteHeader(code)
}

func (c *changed) Write(p []byte) (int, error) {
	_, err := c.ResponseWriter.Write([]byte(c.how(string(p))))
	return len(p), err
}

func (c *changed) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

// TestConformanceNoticesFaults: a row fails on a server that lacks its behaviour, and each row has such a server.
func TestConformanceNoticesFaults(t *testing.T) {
	named := func(prefix string) (found []row) {
		for _, r := range rows() {
			if strings.HasPrefix(r.name, prefix) {
				found = append(found, r)
			}
		}
		return found
	}
	noticed := map[string]bool{}
	var g sync.WaitGroup
	for _, m := range mutants {
		for _, prefix := range m.rows {
			require.Len(t, named(prefix), 1, "the row %q", prefix)
			noticed[named(prefix)[0].name] = true
		}
		a := mutated(t, m)
		for _, prefix := range m.rows {
			g.Go(func() { // all at once: most rows that fail wait
				ctx, cancel := context.WithTimeout(t.Context(), max(m.within, 3*time.Second))
				defer cancel()
				assert.NotEmpty(t, failureOf(ctx, named(prefix)[0], a), "the row %q passes on a server that %s", prefix, m.name)
			})
		}
	}
	g.Wait()
	t.Logf("%d rows, %d servers that each lack a behaviour", len(rows()), len(mutants))
	for _, r := range rows() {
		assert.True(t, noticed[r.name], "no server without its behaviour fails the row %q", r.name)
	}
}

// stamp changes an object each time that it is written.
func stamp(o object) (none field.ErrorList) {
	o.SetAnnotations(map[string]string{"stamp": strconv.FormatInt(counter.Add(1), 10)})
	return none
}

func readAll(r *http.Request) (string, error) {
	raw, err := io.ReadAll(r.Body)
	return string(raw), err
}

func setBody(r *http.Request, text string) {
	_, _ = io.Copy(io.Discard, r.Body) // the server reads the next request after it
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
}
