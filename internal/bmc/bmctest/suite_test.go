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
	honest := Driver{New: func(*testing.T) *World { return fakeWorld(mutant{}) }}
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
	for fault, c := range map[string]struct {
		m  mutant
		by string
	}{
		"no answer is off":                  {mutant{offOnError: true}, "hang"},
		"no answer is off, later":           {mutant{offOnError: true}, "hang of an open session"},
		"accepted is off":                   {mutant{believesSend: true}, "accepted is no proof"},
		"accepted is off, late":             {mutant{believesSend: true}, "late off"},
		"accepted is off for ever":          {mutant{believesSend: true}, "off, then on again"},
		"on its way is off":                 {mutant{movingIsOff: true}, "on its way is unknown"},
		"on its way is an error":            {mutant{movingIsError: true}, "on its way is unknown"},
		"on its way without its words":      {mutant{movingIsMute: true}, "on its way is unknown"},
		"a restart is not told":             {mutant{sameSession: true}, "restart voids the proof"},
		"each reading is a session":         {mutant{newSession: true}, "restart voids the proof"},
		"nothing can be proven":             {mutant{newSession: true}, "off, proof, on"},
		"a reading is given again":          {mutant{stale: true}, "reads are exact"},
		"a reading is older than told":      {mutant{oldTime: true}, "reads are exact"},
		"no identity":                       {mutant{noIdentity: true}, "reads are exact"},
		"the first identity for ever":       {mutant{forgetsUUID: true}, "identity"},
		"endless raw text":                  {mutant{longRaw: true}, "reads are exact"},
		"off is a toggle":                   {mutant{toggles: true}, "commands are absolute"},
		"anything is on":                    {mutant{anyCommand: true}, "commands are absolute"},
		"already there fails":               {mutant{failsSame: true}, "already there is no failure"},
		"already there is not told":         {mutant{hidesSame: true}, "already there is no failure"},
		"ctx is not honoured":               {mutant{deaf: true}, "hang"},
		"ctx is not honoured, half-open":    {mutant{deaf: true}, "half-open connection"},
		"a refused account is a dead BMC":   {mutant{refusedIsMute: true}, "wrong password"},
		"the password is in the error":      {mutant{tellsSecret: true}, "wrong password"},
		"the password is in another error":  {mutant{tellsSecret: true}, "hang"},
		"errors have no type":               {mutant{untyped: true}, "hang"},
		"a wrong password is tried on":      {mutant{retriesLogin: true}, "password tries"},
		"close tries the password":          {mutant{triesOnClose: true}, "password tries"},
		"a lost answer is told as not sent": {mutant{neverSent: true}, "lost answer"},
		"one error is the end":              {mutant{neverRecovers: true}, "hang"},
		"a lost request is the end":         {mutant{fragile: true}, "bad network"},
		"a lost session is the end":         {mutant{clings: true}, "restart in mid-command"},
		"a status needs a body":             {mutant{needsBodies: true}, "status without a body"},
		"a refusal needs a body":            {mutant{needsBodies: true}, "refusal without a body"},
		"a connection is a session":         {mutant{countsConns: true}, "connections end without a word"},
		"the session stays":                 {mutant{leaksSession: true}, "close leaves no session"},
		"the session stays when ctx ended":  {mutant{leaksWhenEnded: true}, "close leaves no session"},
		"a cut login leaves its session":    {mutant{leaksCutLogin: true}, "cut logins leave no session"},
		"a session for each read":           {mutant{sessionPerRead: true}, "close leaves no session"},
		"a session for each read, for many": {mutant{sessionPerRead: true}, "many users"},
		"close is possible once":            {mutant{closesOnce: true}, "close"},
		"close waits for the BMC":           {mutant{slowClose: true}, "close while the BMC hangs"},
	} {
		by := caseNamed(t, c.by)
		delete(idle, c.by)
		synctest.Test(t, func(t *testing.T) {
			r := &record{ctx: t.Context()}
			var wait sync.WaitGroup
			wait.Go(func() { // FailNow ends this goroutine
				d := Driver{Patience: 3 * time.Second, Slack: 4 * time.Second} // less than a mutant is late
				by.run(r, d.withDefaults(), fakeWorld(c.m))
			})
			wait.Wait()
			assert.NotEmpty(t, r.failed, "%s: %q lets it pass", fault, c.by)
		})
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
