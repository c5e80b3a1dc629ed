// Package k8stest has what the tests of k8swatch and of the packages below it share: kubeconfigs, and answers that a
// real API server does not give on demand.
package k8stest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/pace"
)

// Served is the kubeconfig of an API server that is this handler.
func Served(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return Kubeconfig(t, server.URL)
}

// Kubeconfig leads to a URL.
func Kubeconfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: hush}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, url)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Status answers with a Status object, as an API server refuses.
func Status(w http.ResponseWriter, code int, reason, name string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d,"details":{"name":%q}}`, reason, reason+" "+name, code, name)
}

// Until waits for a condition, for as long as a busy machine may need.
func Until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, pace.Tries, 20*time.Millisecond, what)
}

// Page answers everything with one text, as a proxy may.
func Page(code int, contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, text)
	}
}

// Endless answers every request with a beginning, and then with more and more of the
// same until the client goes away.
func Endless(begin, more string, sent *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if _, err := w.Write([]byte(begin)); err != nil {
			return
		}
		one := int64(0)
		for chunk := []byte(strings.Repeat(more, 64<<10/len(more))); ; {
			n, err := w.Write(chunk)
			if one += int64(n); one > sent.Load() {
				sent.Store(one)
			}
			if err != nil {
				return
			}
		}
	}
}

// Slack is more than what lies in the buffers between a server and a client: those of the kernel
// alone hold up to 40 MiB.
const Slack = 64 << 20

// Impostors are answers with which something that is not the API server, or not
// well, may answer any request.
var Impostors = map[string]http.HandlerFunc{
	"empty object":   Page(200, "application/json", `{}`),
	"health page":    Page(200, "application/json", `{"status":"ok"}`),
	"maintenance":    Page(200, "application/json", `{"status":{"phase":"maintenance"},"items":[]}`),
	"success":        Page(200, "application/json", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`),
	"another kind":   Page(200, "application/json", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n1","uid":"u1","resourceVersion":"1"}}`),
	"another name":   Page(200, "application/json", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n2","uid":"u1","resourceVersion":"1"}}`),
	"no identity":    Page(200, "application/json", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"}}`),
	"list of nobody": Page(200, "application/json", `{"kind":"PodList","apiVersion":"v1","items":[]}`),
	"null":           Page(200, "application/json", `null`),
	"cut off":        Page(200, "application/json", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"`),
	"deep":           Page(200, "application/json", strings.Repeat(`{"a":`, 1<<20)),
	"html":           Page(200, "text/html", `<html>welcome</html>`),
	"nothing":        Page(204, "application/json", ``),
	"empty body":     Page(200, "application/json", ``),
	"no type":        Page(200, "", `{}`),
	"not protobuf":   Page(200, "application/vnd.kubernetes.protobuf", "k8s\x00garbage\xff\xff\xff\xff\xff"),
	"unauthorised":   Page(401, "text/html", `<form>`),
}
