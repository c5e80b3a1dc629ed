package api

import (
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// daemon is the user that the daemon runs as, logged in as itself.
var daemon = Peer{UID: uint32(os.Geteuid()), User: "fenced"}

// TestTwoPersonsAreTwoPeople: one human being, by whatever users, is one person. Peers without a login and without a reason are those
// of a kernel that keeps none. // I26
func TestTwoPersonsAreTwoPeople(t *testing.T) {
	hidden := admin
	hidden.NoLogin = errors.New("it is hidden")
	service := oper
	service.NoLogin = errNoLogin
	for _, tc := range []struct {
		name          string
		first, second Peer
		want          string // the answer to the second; "" = it is carried out
	}{
		{"two users", admin, oper, ""},
		{"two by sudo", byLogin(admin, root), byLogin(oper, root), ""},
		{"one by sudo, one not", byLogin(admin, root), oper, ""},
		{"somebody, then a service of another user", admin, service, CodePersonUnknown},
		{"somebody, then a uid without a name", admin, Peer{UID: 100009}, CodePersonUnknown},
		{"somebody, then a uid without a name that chose a login", admin, byLogin(oper, Peer{UID: 100009}), CodePersonUnknown},
		{"oneself twice", admin, byLogin(admin, admin), CodeSecondPersonNeeded},
		{"oneself, then by sudo", admin, byLogin(admin, root), CodeSecondPersonNeeded},
		{"by sudo, then oneself", byLogin(admin, root), admin, CodeSecondPersonNeeded},
		{"by sudo twice", byLogin(admin, root), byLogin(admin, root), CodeSecondPersonNeeded},
		{"oneself, then by sudo as somebody else", admin, byLogin(admin, oper), CodeSecondPersonNeeded},
		{"somebody else by sudo, then who that is", byLogin(admin, oper), oper, CodeSecondPersonNeeded},
		{"oneself, then by sudo as the daemon", admin, byLogin(admin, daemon), CodeSecondPersonNeeded},
		{"oneself, then root", admin, root, CodePersonUnknown},
		{"oneself, then who logged in as root", admin, byLogin(root, root), CodePersonUnknown},
		{"oneself, then root as somebody else", admin, byLogin(root, oper), CodePersonUnknown},
		{"oneself, then the daemon", admin, daemon, CodePersonUnknown},
		{"oneself, then who logged in as the daemon", admin, byLogin(daemon, oper), CodePersonUnknown},
		{"somebody, then one whose login is hidden", oper, hidden, CodePersonUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, now := secondOf(Fence), time.Now()
			give := func(p Peer) error {
				_, _, err := s.check(Order{Verb: Fence, Node: "n-1", Actor: p.Actor()}, p, now)
				return err
			}
			require.Equal(t, CodeSecondPersonNeeded, codeOf(give(tc.first)))
			assert.Equal(t, tc.want, codeOf(give(tc.second)))
			if tc.want == CodePersonUnknown { // in the other order either, and the first one's word still stands
				assert.Equal(t, CodePersonUnknown, codeOf(give(tc.second)))
				assert.Empty(t, codeOf(give(Peer{UID: 4010, User: "nina"})))
				assert.Equal(t, CodePersonUnknown, codeOf(give(tc.second)))
				assert.Equal(t, CodeSecondPersonNeeded, codeOf(give(tc.first)), "who counts as none is no first person")
			}
		})
	}
}

// codeOf is the code of an answer, "" for none.
func codeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// TestUnknownPersonIsTold: who counts as none reads why, and what to do; the refusal
// is on record, and what needs no second person is theirs as ever.
func TestUnknownPersonIsTold(t *testing.T) {
	d := &fake{}
	s := NewServer(d, roles, nil, Fence)
	code, body := requestOf(t, s, root, http.MethodPost, "/v1/nodes/n-1/fence", `{"reason":"disk"}`)
	assert.Equal(t, http.StatusUnprocessableEntity, code)
	assert.Contains(t, body, "root (uid 0) without a login does not identify a person")
	assert.Contains(t, body, "log in under your own name")
	assert.Equal(t, []string{CodePersonUnknown}, d.codes)
	require.Empty(t, d.orders)
	code, _ = requestOf(t, s, root, http.MethodPost, "/v1/pause", `{"reason":"storm"}`)
	assert.Equal(t, http.StatusOK, code)
}

func TestActorTellsTheLogin(t *testing.T) {
	assert.Equal(t, "root (uid 0)", root.Actor())
	assert.Equal(t, "anna (uid 4003)", byLogin(admin, admin).Actor())
	assert.Equal(t, "anna (uid 4003) as root (uid 0)", byLogin(admin, root).Actor())
	assert.Equal(t, "uid 4009 as uid 4010", byLogin(Peer{UID: 4009}, Peer{UID: 4010}).Actor())
}

// TestLoginGivesNoRole: roles are those of the user, whoever logged in.
func TestLoginGivesNoRole(t *testing.T) {
	assert.Equal(t, Nobody, roles.Of(byLogin(admin, other)))
	assert.Equal(t, Admin, roles.Of(byLogin(other, root)))
}
