package wire

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// command is a line of a shell that an operator finds in a sentence.
var command = regexp.MustCompile(`\b(fencectl|fenced|systemctl|kubectl|chronyc|journalctl|df|ls|rm) [-a-z/]`)

// requireNext wants every degraded line to end with what comes next, a command in it.
func requireNext(t *testing.T, s Status) {
	t.Helper()
	for _, d := range s.Degradations() {
		require.Regexp(t, command, d.Next, d.What)
	}
}

// whole is a status that is not degraded, with one of everything that can be.
func whole() Status {
	return Status{
		Armed: true, BMCs: BMCCount{Total: 4},
		Clusters: []ClusterStatus{{
			Name: "prod", Mode: "evaluate", Armed: true, Owner: true, Checks: []CheckStatus{{Name: "w", State: "Active", Allowed: true}}, Cover: &NodeCover{Covered: 1},
			Holds: []HoldStatus{{Node: "n"}},
		}},
		Runs: []RunStatus{{ID: "r", Node: "n", Step: "PowerOff"}},
	}
}

// TestEveryDegradedLineSaysWhatComesNext: whatever an answer of the daemon says, alone or beside another thing, no line is
// without a command. An older daemon gives no Next. The fields are found by reflection, so that a new one is asked too.
func TestEveryDegradedLineSaysWhatComesNext(t *testing.T) {
	require.Empty(t, whole().Degraded())
	words := []string{"", "x", "respond", "observe", "Invalid", "Disabled", "Active", "Paused", ResultHeld, ResultWaiting, "BMCAuth"}
	found := map[string]bool{}
	try := func(s *Status) {
		requireNext(t, *s)
		for _, d := range s.Degradations() {
			found[regexp.MustCompile(`[0-9]+`).ReplaceAllString(d.What, "#")] = true
		}
	}
	s := whole()
	var walk func(v reflect.Value)
	with := func(v, to reflect.Value, then func()) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.Set(to)
		try(&s)
		then()
		v.Set(old)
	}
	nothing := func() {}
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			for _, w := range words {
				with(v, reflect.ValueOf(w), nothing)
			}
		case reflect.Bool:
			with(v, reflect.ValueOf(!v.Bool()), nothing)
		case reflect.Int, reflect.Uint64:
			with(v, reflect.ValueOf(3).Convert(v.Type()), nothing)
		case reflect.Pointer:
			if v.IsNil() {
				with(v, reflect.New(v.Type().Elem()), func() { walk(v.Elem()) })
				return
			}
			with(v, reflect.Zero(v.Type()), nothing)
			walk(v.Elem())
		case reflect.Slice:
			if v.Len() == 0 {
				with(v, reflect.MakeSlice(v.Type(), 1, 1), func() { walk(v.Index(0)) })
				return
			}
			with(v, reflect.Zero(v.Type()), nothing)
			walk(v.Index(0))
		case reflect.Struct:
			if v.Type() == reflect.TypeFor[time.Time]() {
				with(v, reflect.ValueOf(at), nothing)
				return
			}
			for i := range v.NumField() {
				if !strings.HasSuffix(v.Type().Field(i).Name, "Next") { // what a daemon gives is tested where it is made
					walk(v.Field(i))
				}
			}
		}
	}
	walk(reflect.ValueOf(&s).Elem())
	assert.Equal(t, whole(), s, "the walk has put everything back")
	assert.GreaterOrEqual(t, len(found), 20, "the walk comes to every kind of line: %v", found)
}

// TestDegradedTextOfWhatTheDaemonKnows: the lines that tell who, which file, by how much and since when.
func TestDegradedTextOfWhatTheDaemonKnows(t *testing.T) {
	one := func(change func(*Status)) string {
		s := whole()
		change(&s)
		require.Len(t, s.Degraded(), 1)
		return s.Degraded()[0]
	}
	for want, change := range map[string]func(*Status){
		"the reload at 2026-01-01T00:00:00Z was refused: hosts.d/a.yaml:3: no scheme. Until this is corrected or undone, fenced runs on what it had before, and a restart would fail. Next: correct it": func(s *Status) {
			s.Reload = &ReloadStatus{Problem: "hosts.d/a.yaml:3: no scheme", Since: at, Restart: "a restart would fail", Next: "correct it"}
		},
		"the reload at 2026-01-01T00:00:00Z was refused: p. Until this is corrected or undone, fenced runs on what it had before. Next: fenced --check-config": func(s *Status) {
			s.Reload = &ReloadStatus{Problem: "p.", Since: at}
		},
		"ipmi://b of n in prod refuses user admin with the password from file /etc/p: BMCAuth: refused. Next: write it": func(s *Status) {
			s.BMCs.Accounts = []RefusedAccount{{User: "admin", PasswordFrom: "file /etc/p", Count: 1, Cluster: "prod", Node: "n", Device: "ipmi://b", Reason: "BMCAuth", Problem: "refused", Next: "write it"}}
		},
		"4 BMCs, ipmi://b of ns/m in prod among them, refuse user admin with the password from Secret ns/s: BMCAuth: refused. Next: fencectl bmc list": func(s *Status) {
			s.BMCs.Accounts = []RefusedAccount{{User: "admin", PasswordFrom: "Secret ns/s", Count: 4, Cluster: "prod", Machine: "ns/m", Device: "ipmi://b", Reason: "BMCAuth", Problem: "refused"}}
		},
		"paused: everything is paused by the file /run/p. Next: rm /run/p": func(s *Status) {
			s.Paused, s.PausedReason, s.PausedNext = true, "everything is paused by the file /run/p", "rm /run/p"
		},
		"check w in prod has a rule that never takes effect: no Node has the condition ready; did you mean Ready?. Next: fencectl check-config w --cluster prod": func(s *Status) {
			s.Clusters[0].Checks[0].UnknownCondition = "no Node has the condition ready; did you mean Ready?"
		},
		"n in prod is in quarantine: again. Next: find out why its runs did not help: fencectl timeline n --cluster prod; then fencectl release n --cluster prod --reason WHY": func(s *Status) {
			s.Clusters[0].Holds = []HoldStatus{{Node: "n", Quarantine: true, Reason: "again"}}
		},
		"ns/m in prod is not remediated (c): BMCBusy: busy; since 2026-01-01T00:00:00Z, next try 2026-01-01T00:00:00Z. Next: fencectl explain --machine ns/m --cluster prod shows every gate; fenced tries again by itself": func(s *Status) {
			s.Blocked = []Blocked{{Cluster: "prod", Machine: "ns/m", Check: "c", Reason: "BMCBusy", Message: "busy", Since: at, NextTry: at}}
		},
	} {
		assert.Equal(t, want, one(change))
	}
}

// TestGapThatAnotherLineTellsOf: a Node that is blocked for the reason of its gap, or whose run has stopped, has one line.
func TestGapThatAnotherLineTellsOf(t *testing.T) {
	s := whole()
	gap := NodeGap{Reason: "BMCUnreachable", Count: 1, Node: "n", Message: "no answer"}
	s.Clusters[0].Cover.Gaps = []NodeGap{gap}
	lines := func() int { return len(s.Degraded()) }
	require.Equal(t, 1, lines())
	s.Blocked = []Blocked{{Cluster: "prod", Node: "n", Check: "c", Reason: "BMCUnreachable", Message: "no answer", Since: at}}
	assert.Equal(t, 1, lines(), "the same")
	s.Clusters[0].Cover.Gaps[0].Count = 2
	assert.Equal(t, 2, lines(), "it is one of several")
	s.Clusters[0].Cover.Gaps[0].Count, s.Blocked[0].Reason = 1, "ShortCircuit"
	assert.Equal(t, 2, lines(), "something else keeps it from being fenced now")
	s.Blocked = nil
	s.Runs[0].Cluster = "prod"
	assert.Equal(t, 1, lines(), "its run is on its way: the line of the gap")
	s.Runs[0].Step, s.Runs[0].Reason = ResultHeld, "ConfirmedOff"
	require.Equal(t, 1, lines())
	assert.Contains(t, s.Degraded()[0], "run r of n is held")
}
