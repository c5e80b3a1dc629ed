package bmctest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

func TestFakePassesTheSuite(t *testing.T) {
	honest := Driver{New: func(*testing.T) *World { return fakeWorld("") }}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runCase(t, c, honest) })
		})
	}
}

// record is a T that remembers whether the case failed.
type record struct {
	ctx    context.Context
	mu     sync.Mutex
	failed []string
}

func (r *record) Helper()                  {}
func (r *record) Context() context.Context { return r.ctx }
func (r *record) FailNow()                 { runtime.Goexit() }

func (r *record) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}

// TestSuiteCatches: a driver with any of these faults does not pass, and the case
// that is for it says so.
func TestSuiteCatches(t *testing.T) {
	idle := map[string]bool{} // cases that catch nothing yet
	for _, c := range cases {
		idle[c.name] = true
	}
	for fault, by := range map[mutant][]string{
		"no answer is off":                  {"hang", "hang of an open session"},
		"accepted is off":                   {"accepted is no proof", "late off", "off, then on again"},
		"on its way is off":                 {"on its way is unknown"},
		"on its way is an error":            {"on its way is unknown"},
		"on its way without its words":      {"on its way is unknown"},
		"a restart is not told":             {"restart voids the proof"},
		"each reading is a session":         {"restart voids the proof", "off, proof, on"},
		"a reading is given again":          {"reads are exact"},
		"a reading is older than told":      {"reads are exact"},
		"no identity":                       {"reads are exact"},
		"the first identity for ever":       {"identity"},
		"endless raw text":                  {"reads are exact"},
		"off is a toggle":                   {"commands are absolute"},
		"anything is on":                    {"commands are absolute"},
		"already there fails":               {"already there is no failure"},
		"already there is not told":         {"already there is no failure"},
		"ctx is not honoured":               {"hang", "half-open connection"},
		"a refused account is a dead BMC":   {"wrong password"},
		"the password is in the error":      {"wrong password", "hang"},
		"errors have no type":               {"hang"},
		"a wrong password is tried on":      {"password tries"},
		"close tries the password":          {"password tries"},
		"a lost answer is told as not sent": {"lost answer"},
		"one error is the end":              {"hang"},
		"a lost request is the end":         {"bad network"},
		"a lost session is the end":         {"restart in mid-command"},
		"a status needs a body":             {"status without a body", "refusal without a body"},
		"a connection is a session":         {"connections end without a word"},
		"the session stays":                 {"close leaves no session"},
		"the session stays when ctx ended":  {"close leaves no session"},
		"a cut login leaves its session":    {"cut logins leave no session"},
		"a session for each read":           {"close leaves no session", "many users"},
		"close is possible once":            {"close"},
		"close waits for the BMC":           {"close while the BMC hangs"},
	} {
		for _, name := range by {
			c := caseNamed(t, name)
			delete(idle, name)
			synctest.Test(t, func(t *testing.T) {
				r := &record{ctx: t.Context()}
				var wait sync.WaitGroup
				wait.Go(func() { // FailNow ends this goroutine
					d := Driver{Patience: 3 * time.Second, Slack: 4 * time.Second} // less than a mutant is late
					c.run(r, d.withDefaults(), fakeWorld(fault))
				})
				wait.Wait()
				assert.NotEmpty(t, r.failed, "%s: %q lets it pass", fault, name)
			})
		}
	}
	assert.Empty(t, idle, "a case that no fault fails proves nothing")
}

func caseNamed(t *testing.T, name string) suiteCase {
	for _, c := range cases {
		if c.name == name {
			return c
		}
	}
	require.Fail(t, "no such case", name)
	return suiteCase{}
}
