package api

import (
	"errors"
	"log"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fenced/fenced/internal/wire"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

// TestNodeNameLaw: what is a Node's name is what the API server takes for one.
func TestNodeNameLaw(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-cA-Z0-9.-]{0,8}`), rapid.StringMatching(`[a-c0-9.-]{250,255}`)).Draw(t, "name")
		if want := len(validation.IsDNS1123Subdomain(name)) == 0; (CheckNode(name) == nil) != want {
			t.Fatalf("%q: %t wanted, got %v", name, want, CheckNode(name))
		}
	})
	require.NoError(t, CheckNode(strings.Repeat("a", 253)))
	require.Error(t, CheckNode(strings.Repeat("a", 254)))
}

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		check func(string) error
		name  string
		good  bool
	}{
		{CheckCluster, "prod", true},
		{CheckCluster, "Prod_1.eu-west", true},
		{CheckCluster, "", false},
		{CheckCluster, "prod\n", false},
		{CheckCluster, "-prod", false},
		{CheckCluster, strings.Repeat("c", 64), false},
		{CheckRun, "mfx0k2a1-0a1b2c", true},
		{CheckRun, "r-1", true},
		{CheckRun, "worker-3.example.com", false},
		{CheckRun, "mfx0k2a1-0a1b2c\n", false},
		{CheckRun, "../pause", false},
		{CheckNode, "worker-3.example.com", true},
		{CheckNode, "worker-3\n", false},
		{CheckNode, "worker-3\u202e", false},
		{CheckNode, "Worker-3", false},
		{CheckNode, "worker_3", false},
		{CheckNode, "..", false},
	} {
		assert.Equal(t, tc.good, tc.check(tc.name) == nil, "%q", tc.name)
	}
	require.ErrorContains(t, CheckNode("a\u202e\u009b"), `"a\u202e\u009b" is not the name of a Node`, "what is repeated is harmless")
	assert.Less(t, len(CheckNode(strings.Repeat("\u009b", 5000)).Error()), 500)
}

// TestWrongNamesGoNowhere: a name that nothing has is refused before it is logged,
// stored or given to the daemon, whoever asks and whatever for.
func TestWrongNamesGoNowhere(t *testing.T) {
	const evil = "n-1\n\u009b2J\u202e"
	for _, target := range []string{
		"GET /v1/nodes/EVIL/explain", "GET /v1/nodes/EVIL/timeline", "GET /v1/runs/EVIL",
		"GET /v1/plan?cluster=EVIL", "GET /v1/check-config?cluster=EVIL", "GET /v1/bmcs?cluster=EVIL", "GET /v1/runs?cluster=EVIL",
		"POST /v1/nodes/EVIL/fence", "POST /v1/nodes/EVIL/unfence", "POST /v1/nodes/EVIL/hold", "POST /v1/nodes/EVIL/release",
		"POST /v1/nodes/EVIL/confirm-off", "POST /v1/nodes/EVIL/bmc/test", "POST /v1/nodes/EVIL/bmc/audit",
		"POST /v1/nodes/EVIL/bmc/enroll", "POST /v1/nodes/EVIL/bmc/release", "POST /v1/runs/EVIL/abort", "POST /v1/runs/EVIL/retry",
		"POST /v1/nodes/n-1/hold?cluster=EVIL", "POST /v1/pause?cluster=EVIL", "POST /v1/resume?cluster=EVIL",
		"POST /v1/arm?cluster=EVIL", "POST /v1/disarm?cluster=EVIL",
		"GET /v1/machines/ns/EVIL/explain", "GET /v1/machines/EVIL/m-1/explain", "POST /v1/machines/ns/EVIL/fence", "POST /v1/machines/EVIL/m-1/hold",
	} {
		method, path, _ := strings.Cut(target, " ")
		escaped := url.PathEscape(evil)
		if strings.Contains(path, "cluster=EVIL") {
			escaped = url.QueryEscape(evil)
		}
		for _, p := range []Peer{admin, other} {
			var logged strings.Builder
			d := &fake{}
			s := NewServer(d, roles, log.New(&logged, "", 0))
			body := `{"reason":"x"}`
			if method == http.MethodGet {
				body = ""
			}
			code, answer := requestOf(t, s, p, method, strings.ReplaceAll(path, "EVIL", escaped), body)
			assert.Equal(t, http.StatusBadRequest, code, "%s: %s", target, answer)
			assert.Contains(t, answer, `\\n`, target)
			assert.Empty(t, logged.String(), target)
			assert.Empty(t, append(d.orders, d.denied...), target)
			assert.Equal(t, wire.RunFilter{}, d.filter, target)
		}
	}
}

// TestClientKeepsNamesApart: a name that is a path is one name, which is refused.
func TestClientKeepsNamesApart(t *testing.T) {
	d := &fake{}
	c := New(serve(t, d, Roles{}))
	_, err := c.Do(t.Context(), wire.Order{Verb: wire.Hold, Node: "n-1/release?cluster=prod", Reason: "x"})
	e, ok := errors.AsType[*Error](err)
	require.True(t, ok)
	assert.Equal(t, http.StatusBadRequest, e.Status)
	assert.Empty(t, d.orders)
}

func TestReason(t *testing.T) {
	for code, good := range map[string]bool{
		"disk fails, ticket 4711":        true,
		"Netzteil getauscht, 50 €":       true,
		"電源\u3000交換":                     true, // a space of its script
		"שרת תקול":                       true,
		"":                               false,
		"a\nb":                           false,
		"a\tb":                           false,
		"a\x7fb":                         false,
		"a\u0085b":                       false,
		"a\u200bb":                       false, // no width
		"a\u2029b":                       false,
		"a\u2066b\u2069":                 false,
		"a\ufeffb":                       false,
		"a\ue000b":                       false, // private use
		"a\U000e0041b":                   false, // a tag
		"a\xffb":                         false,
		strings.Repeat("x", maxReason):   true,
		strings.Repeat("x", maxReason+1): false,
	} {
		assert.Equal(t, good, CheckReason(code) == nil, "%q", code)
	}
}
