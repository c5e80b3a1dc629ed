package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
)

func TestEscapeJSON(t *testing.T) {
	assert.Equal(t, "{ \"a\": \"\\u007f\\u009b2J\\u202e\\udb40\\udc41é€\\ufffd\"}\n", string(EscapeJSON([]byte("{\t\"a\": \"\x7f\u009b2J\u202e\U000e0041é€\xff\"}\n"))))
	plain := []byte(`{"newer": {"z":1,  "a":[ ]}, "b":"\u001b"}` + "\n")
	assert.Equal(t, plain, EscapeJSON(plain))
}

// FuzzEscapeJSON: what a terminal is given is harmless, and JSON means what it meant.
func FuzzEscapeJSON(f *testing.F) {
	for _, seed := range []string{
		"{\"a\":\"\u202e\u009b\x7f\u2028\U000e0001\"}\r\n", "[\"\xff\xc2\",\t1]", "\x1b[2J", `"\ud800"`, "{\"\u200b\":{\"\u200b\":null}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := EscapeJSON(text)
		for _, r := range string(got) {
			require.True(t, r == '\n' || unicode.IsGraphic(r), "%U", r)
		}
		var want, is any
		if unmarshal(text, &want) != nil {
			return
		}
		require.NoError(t, unmarshal(got, &is))
		require.Equal(t, want, is)
	})
}

// unmarshal keeps numbers as they are written.
func unmarshal(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return dec.Decode(v)
}

// Pods that are not known are absent, none are counted, and of many the first are named.
func TestTargetTellsItsPods(t *testing.T) {
	var names []string
	for n := range maxPods + 5 {
		names = append(names, fmt.Sprintf("ns/p-%02d", n))
	}
	none, many := PodsOf(nil, false), PodsOf(names, true)
	some := PodsOf(names[:2], false)
	for _, tc := range []struct {
		target OrderTarget
		want   string
	}{
		{OrderTarget{Cluster: "c", Node: "n", PodsProblem: "forbidden", BMC: "ipmi://bmc"},
			`{"cluster":"c","node":"n","ready":"","podsProblem":"forbidden","bmc":"ipmi://bmc"}`},
		{OrderTarget{Cluster: "c", Node: "n", Ready: "Unknown", ReadySince: at, Pods: &none},
			`{"cluster":"c","node":"n","ready":"Unknown","readySince":"2026-01-01T00:00:00Z","podCount":0}`},
		{OrderTarget{Cluster: "c", Node: "n", Machine: "ns/m", Pods: &some, Identity: "match", UUID: "4c4c"},
			`{"cluster":"c","node":"n","machine":"ns/m","ready":"","pods":["ns/p-00","ns/p-01"],"podCount":2,"identity":"match","uuid":"4c4c"}`},
	} {
		text := must.Do(json.Marshal(tc.target))(t)
		assert.Equal(t, tc.want, string(text))
		var read OrderTarget
		require.NoError(t, json.Unmarshal(text, &read))
		assert.Equal(t, tc.target, read)
	}
	assert.Equal(t, Pods{Names: names[:maxPods], Count: maxPods + 5, More: true}, many)
}

// What the daemon knows of who gives an order, and of what it is about, never comes from the body.
func TestBodySaysNothingOfTheSender(t *testing.T) {
	o := Order{
		Verb: Fence, Cluster: "c", Node: "n", Machine: "ns/m", Run: "r-1", Actor: "ada", Role: Admin,
		Reason: "disk", For: Span(90 * time.Minute), DryRun: true,
	}
	text := must.Do(json.Marshal(o))(t)
	assert.Equal(t, `{"reason":"disk","dryRun":true,"for":"1h30m0s"}`, string(text))
	var read Order
	require.NoError(t, json.Unmarshal([]byte(`{"reason":"disk","verb":"fence","Actor":"eve","Role":3,"role":3,"node":"n"}`), &read))
	assert.Equal(t, Order{Reason: "disk"}, read)
}

var at = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestFromRun(t *testing.T) {
	run := remediate.Run{
		ID: "r-1", Target: remediate.Target{Cluster: "prod", Node: "n-1", Namespace: "ns", Machine: "m-1"},
		Trigger: "Ready is Unknown", Step: remediate.Held, Reason: "PowerOffFailed", Note: "the BMC reads On",
		Started: at, Manual: &remediate.Order{Actor: "olaf (uid 4002)"},
		Steps: []remediate.Visit{
			{Step: remediate.PowerOff, Attempt: 1, Started: at, Ended: at.Add(time.Minute), Note: "deadline"},
			{Step: remediate.Held, Attempt: 1, Started: at.Add(time.Minute)},
		},
	}
	body := must.Do(json.Marshal(FromRun(run)))(t)
	assert.JSONEq(t, `{"id":"r-1","cluster":"prod","node":"n-1","machine":"ns/m-1","trigger":"Ready is Unknown",
		"actor":"olaf (uid 4002)","result":"Held","reason":"PowerOffFailed","class":"transient","note":"the BMC reads On","started":"2026-01-01T00:00:00Z",
		"steps":[{"step":"PowerOff","attempt":1,"started":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:01:00Z","note":"deadline"}]}`, string(body))
}

// A run that only passes step 6, because its Machine may not be replaced, is not shown there.
func TestRunThatPassesStep6IsNotShownThere(t *testing.T) {
	left := remediate.Visit{Step: remediate.Reprovision, Attempt: 3, Started: at, Ended: at}
	for _, tc := range []struct {
		name  string
		run   remediate.Run
		note  string
		shown bool
	}{
		{"entered", remediate.Run{Step: remediate.Reprovision}, "", false},
		{"deleting", remediate.Run{Step: remediate.Reprovision, Intent: remediate.Intent{Action: remediate.DeleteTargetMachine}}, "", true},
		{"of a check that deletes", remediate.Run{Step: remediate.Reprovision, Strategy: remediate.DeleteMachine}, "", true},
		{"waits", remediate.Run{Step: remediate.Waiting}, "AttemptsExhausted: reprovisioning is not allowed here", false},
		{"waits, not on", remediate.Run{Step: remediate.Waiting}, "PowerOnFailed: the host was not read On in time; last read: Off", false},
		{"renamed", remediate.Run{Step: remediate.Held}, "NodeRenamed: the host registered as Node x", false},
		{"replaced", remediate.Run{Step: remediate.Reprovisioned}, "the BMC does not answer", true},
		{"came back", remediate.Run{Step: remediate.AwaitNode}, "the Node is Ready after all", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := left
			if v.Note = tc.note; tc.run.Step == remediate.Reprovision {
				v.Ended = time.Time{}
			}
			tc.run.Steps = []remediate.Visit{{Step: remediate.PowerOn, Attempt: 3, Started: at, Ended: at}, v}
			steps := []string{}
			for _, s := range FromRun(tc.run).Steps {
				steps = append(steps, s.Step)
			}
			assert.Equal(t, tc.shown, len(steps) == 2, "%v", steps)
			if tc.run.Step == remediate.Reprovision {
				assert.Equal(t, tc.shown, StatusOfRun(tc.run).Step == "Reprovision")
			}
		})
	}
}

// The begin on record stays when a person has the run taken up again.
func TestRecordBeginsWithTheFirstStep(t *testing.T) {
	run := remediate.Run{Started: at.Add(time.Hour), Steps: []remediate.Visit{{Step: remediate.PowerOff, Started: at}}}
	assert.Equal(t, at, FromRun(run).Started)
	assert.Equal(t, at, StatusOfRun(run).Started)
}

func TestResultOfEveryStep(t *testing.T) {
	want := map[remediate.Step]string{
		remediate.PowerOff: "Running", remediate.DeleteNode: "Running", remediate.PowerOn: "Running",
		remediate.AwaitNode: "Running", remediate.Waiting: "Waiting", remediate.RestoreNode: "Running", remediate.Reprovision: "Running",
		remediate.Held: "Held", remediate.Done: "Done", remediate.Aborted: "Aborted", remediate.Reprovisioned: "Reprovisioned",
	}
	for step, result := range want {
		assert.Equal(t, result, FromRun(remediate.Run{Step: step}).Result)
		assert.Equal(t, result == "Running", StepNumber(string(step)) > 0, step)
	}
}

func TestStatusOfRun(t *testing.T) {
	body := must.Do(json.Marshal(StatusOfRun(remediate.Run{
		ID: "r-1", Target: remediate.Target{Cluster: "prod", Node: "n-1"}, Step: remediate.PowerOff, Attempt: 1,
		Started: at, StepStarted: at, Limits: remediate.Limits{OffDeadline: time.Minute},
	})))(t)
	assert.JSONEq(t, `{"id":"r-1","cluster":"prod","node":"n-1","machine":"","step":"PowerOff","attempt":1,
		"started":"2026-01-01T00:00:00Z","deadline":"2026-01-01T00:01:00Z","reason":""}`, string(body))
}

func TestDegraded(t *testing.T) {
	check := func(c CheckStatus) []ClusterStatus {
		c.Namespace, c.Name = "ns", "w"
		return []ClusterStatus{{Name: "prod", Checks: []CheckStatus{c}}}
	}
	for _, tc := range []struct {
		name   string
		status Status
		want   string
	}{
		{"all is well", Status{Armed: true, Clusters: check(CheckStatus{State: "Active", Allowed: true})}, ""},
		{"a paused check is somebody's wish", Status{Armed: true, Clusters: check(CheckStatus{State: "Paused"})}, ""},
		{"a standby is not ill", Status{Armed: true, Clusters: []ClusterStatus{{Name: "prod"}}}, ""},
		{"a run in flight is its job", Status{Armed: true, Runs: []RunStatus{{Step: "PowerOff"}}}, ""},
		{"not armed", Status{}, "not armed"},
		{"one of two not armed", Status{Clusters: []ClusterStatus{{Name: "prod", Mode: "evaluate", Armed: true}, {Name: "lab", Mode: "observe"}}},
			"cluster lab is in mode observe and not armed: fenced fences nothing there by itself. Next: fencectl arm --cluster lab --reason WHY"},
		{"paused", Status{Armed: true, Paused: true, PausedReason: "storm"}, "paused: storm"},
		{"a pause of all is told once", Status{Armed: true, Paused: true, PausedReason: "storm",
			Clusters: []ClusterStatus{{Name: "prod", Paused: true, PausedReason: "storm"}}}, "paused: storm"},
		{"cluster paused", Status{Armed: true, Clusters: []ClusterStatus{{Name: "prod", Paused: true, PausedReason: "storm"}}}, "cluster prod is paused: storm"},
		{"view", Status{Armed: true, Clusters: []ClusterStatus{{Name: "prod", Problem: "view is 90s old"}}}, "cluster prod: view is 90s old"},
		{"its own host", Status{Armed: true, Clusters: []ClusterStatus{{Name: "prod", Aside: "n-1 is its host"}}}, "cluster prod is left to other instances: n-1 is its host"},
		{"a deletion in progress is its job", Status{Armed: true, Clusters: []ClusterStatus{{Name: "prod", DeletionsInProgress: 1}}}, ""},
		{"overdue deletions", Status{Armed: true, Clusters: []ClusterStatus{{Name: "prod", DeletionsOverdue: 2}}}, "cluster prod: 2 deleted Machines, or their Nodes, still exist after guards.deletionTimeout. " +
			"Next: journalctl -u fenced FENCED_REASON=DeletionOverdue names them; read the log of their controller, and remove no finalizer while the host may run"},
		{"limit", Status{Armed: true, Clusters: check(CheckStatus{State: "Active", Healthy: 1, Expected: 5, Reason: "OutOfRange", Limit: "1 to 2 ([1-2])"})},
			"check ns/w in prod allows no remediation (OutOfRange): 4 of 5 not healthy, 1 to 2 ([1-2]). Next: find the common cause: fencectl plan --cluster prod"},
		{"limit of 0", Status{Armed: true, Clusters: check(CheckStatus{State: "Active", Allowed: true, LimitIsZero: "10% of 3 allows 0 unhealthy targets"})},
			"check ns/w in prod protects no target: 10% of 3 allows 0 unhealthy targets. Next: write a number in place of the percentage, or a larger one: fencectl check-config ns/w --cluster prod"},
		{"invalid check", Status{Armed: true, Clusters: check(CheckStatus{State: "Invalid", Message: "foo10m"})},
			"check ns/w in prod is invalid and protects no target: foo10m. Next: fencectl check-config ns/w --cluster prod"},
		{"disabled check", Status{Armed: true, Clusters: check(CheckStatus{State: "Disabled", Message: "it names no template"})},
			"check ns/w in prod is disabled and protects no target: it names no template. Next: fencectl check-config ns/w --cluster prod"},
		{"checks start nothing in mode respond", Status{Armed: true, Clusters: []ClusterStatus{{Name: "prod", Mode: "respond",
			Checks: []CheckStatus{{State: "Disabled"}, {State: "Active", Expected: 5}, {State: "Invalid"}}}}}, ""},
		{"held", Status{Armed: true, Runs: []RunStatus{{ID: "r", Node: "n", Step: "Held", Reason: "FoundOff"}}}, "run r of n is held: FoundOff"},
		{"waiting", Status{Armed: true, Runs: []RunStatus{{ID: "r", Machine: "m", Step: "Waiting", Reason: "BMCBusy"}}}, "run r of m waits: BMCBusy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			why := tc.status.Degraded()
			if tc.want == "" {
				assert.Empty(t, why)
				return
			}
			require.Len(t, why, 1)
			assert.Contains(t, why[0], tc.want)
		})
	}
}

// The version is the first field of any object, and of nothing else.
func TestVersioned(t *testing.T) {
	for in, want := range map[string]string{
		"{}": `{"apiVersion":"v1"}`, "{\n}": "{\"apiVersion\":\"v1\"\n}", `{"a":1}`: `{"apiVersion":"v1","a":1}`, "[1]": "[1]", "": "",
	} {
		assert.Equal(t, want, string(Versioned([]byte(in))))
	}
}

// The same labels are the same group, however they are given.
func TestLabelsOfAGroup(t *testing.T) {
	for want, groups := range map[string][]Group{
		"topology.kubernetes.io/zone=a": {{Zone: "a"}, {Selector: "topology.kubernetes.io/zone=a"}},
		"rack=r7":                       {{Rack: "r7"}, {Selector: "rack=r7"}},
		"a=1,b/c=2":                     {{Selector: "b/c=2,a=1"}, {Selector: "a=1,b/c=2"}},
	} {
		for _, g := range groups {
			labels, err := g.Labels("topology.kubernetes.io/zone", "rack")
			require.NoError(t, err, g)
			assert.Equal(t, want, SelectorOf(labels), g)
		}
	}
}

func TestWrongLabelsOfAGroup(t *testing.T) {
	var many []string
	for i := range maxLabels + 1 {
		many = append(many, fmt.Sprintf("k%d=v", i))
	}
	for text, g := range map[string]Group{
		"0 are given":                {},
		"3 are given":                {Selector: "a=b", Zone: "c", Rack: "d"},
		`"a in (b)=" is not`:         {Selector: "a in (b)"},
		`"a=" is not KEY=VALUE`:      {Selector: "a="},
		`"=" is not KEY=VALUE`:       {Selector: "a=b,"},
		`"a!=b" is not KEY=VALUE`:    {Selector: "a!=b"},
		`" c=d" is not KEY=VALUE`:    {Selector: "a=b, c=d"},
		`"zone=a,b=c" is not`:        {Zone: "a,b=c"}, // it is one value
		`"zone=a=b" is not`:          {Zone: "a=b"},
		"the label a is given twice": {Selector: "a=b,a=b"},
		"at most 8":                  {Selector: strings.Join(many, ",")},
	} {
		_, err := g.Labels("zone", "rack")
		assert.ErrorContains(t, err, text, g)
	}
	_, err := Group{Rack: "r7"}.Labels("zone", "")
	assert.Error(t, err, "no label is one of racks")
}

// A status lists the newest runs that ended in the last 24 hours, and counts the others.
func TestRecentRuns(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	ended := func(id string, ago time.Duration) remediate.Run {
		return remediate.Run{ID: id, Step: remediate.Done, Started: now.Add(-ago - time.Minute), Ended: now.Add(-ago)}
	}
	byAnna := ended("r-2", time.Hour)
	byAnna.Manual = &remediate.Order{Actor: "anna"}
	list, more := RecentRuns([]remediate.Run{ended("r-1", 23*time.Hour), {ID: "open", Step: remediate.Waiting}, byAnna, ended("old", 25*time.Hour)}, now)
	assert.Zero(t, more)
	if assert.Len(t, list, 2) {
		assert.Equal(t, []string{"r-2", "anna", ResultDone, "r-1"}, []string{list[0].ID, list[0].Actor, list[0].Result, list[1].ID})
	}
	var many []remediate.Run
	for i := range maxRecent + 3 {
		many = append(many, ended(fmt.Sprintf("r-%02d", i), time.Hour))
	}
	list, more = RecentRuns(many, now)
	assert.Len(t, list, maxRecent)
	assert.Equal(t, 3, more)
	assert.Equal(t, "r-22", list[0].ID)
}

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

// Of more Nodes than there is room for, the most urgent are told in their order, and all are counted.
func TestMostUrgentNodes(t *testing.T) {
	all := Nodes{Nodes: []Node{{Node: "a", State: NodeHealthy}, {Node: "b", State: NodeUncovered}, {Node: "c", State: NodeHealthy}, {Node: "d", State: "FromTheFuture"}, {Node: "e", State: NodeHeld}}}
	for most, want := range []string{"", "e", "ae", "ace", "abce", "abcde", "abcde"} {
		got, names := all.MostUrgent(most), ""
		for i := range got.Nodes {
			names += got.Nodes[i].Node
		}
		assert.Equal(t, want, names)
		assert.Equal(t, max(0, 5-most), got.More)
		assert.Equal(t, map[string]int{NodeHealthy: 2, NodeUncovered: 1, NodeHeld: 1, "FromTheFuture": 1}, got.States)
	}
}

// TestPausesOfSeveralClustersAreToldEach: each has its own person, reason and end, also where together they pause all.
func TestPausesOfSeveralClustersAreToldEach(t *testing.T) {
	why := Status{Armed: true, Paused: true, PausedReason: "lab is paused by ada", PausedNext: "fencectl resume --cluster lab --reason WHY", Clusters: []ClusterStatus{
		{Name: "prod", Paused: true, PausedReason: "prod is paused by bob", PausedNext: "fencectl resume --cluster prod --reason WHY"},
		{Name: "lab", Paused: true, PausedReason: "lab is paused by ada", PausedNext: "fencectl resume --cluster lab --reason WHY"}}}.Degraded()
	assert.Equal(t, []string{
		"paused: lab is paused by ada. Next: fencectl resume --cluster lab --reason WHY",
		"cluster prod is paused: prod is paused by bob. Next: fencectl resume --cluster prod --reason WHY",
	}, why)
}
