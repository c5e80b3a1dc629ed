package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryRowRefusesLowerRoles: a row that is added to a table is guarded by its role,
// and refuses before anything is done.
func TestEveryRowRefusesLowerRoles(t *testing.T) {
	peers := []Peer{other, viewer, oper, admin}
	names := strings.NewReplacer("{node}", "n-1", "{id}", "r-1", "{namespace}", "ns", "{machine}", "m-1")
	refuses := func(method, pattern string, need Role) {
		require.Greater(t, need, Nobody, pattern)
		for role, p := range peers[:need] {
			d := &fake{}
			code, body := request(t, d, roles, p, method, names.Replace(pattern), `{"reason":"test"}`)
			assert.Equal(t, http.StatusForbidden, code, "%s as %s", pattern, Role(role))
			assert.Contains(t, body, need.String(), pattern)
			assert.Empty(t, d.orders, pattern)
		}
	}
	for _, r := range reads {
		refuses(r.method, r.pattern, r.need)
	}
	for _, v := range verbs {
		for _, pattern := range v.patterns() {
			refuses(http.MethodPost, pattern, v.need)
		}
	}
}

// TestEveryFieldIsOfABody: a misspelt field of a row would refuse what the verb takes.
func TestEveryFieldIsOfABody(t *testing.T) {
	known := map[string]bool{}
	for _, f := range bodyFields {
		known[f.name] = true
	}
	for _, v := range verbs {
		for _, name := range v.takes {
			assert.True(t, known[name], "%s takes %s", v.name, name)
		}
	}
}
