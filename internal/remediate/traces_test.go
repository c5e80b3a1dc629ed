package remediate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/must"
)

// TestTraces plays the stories of testdata: one run each, what each look found in, and what
// Next made of it out. testdata/README.md says how to read them.
func TestTraces(t *testing.T) {
	files := must.Do(filepath.Glob("testdata/*.txt"))(t)
	require.GreaterOrEqual(t, len(files), 12)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want := must.Do(os.ReadFile(file))(t)
			require.Regexp(t, `^# .+\.\n`, string(want), "a story begins with what it shows")
			got := playTrace(t, string(want))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			assert.Equal(t, string(want), got, "go test ./internal/remediate -update")
		})
	}
}

// trace is one story while it is played: the record, and what the next look will find.
type trace struct {
	run      Run
	seen     Observation
	now      time.Time
	accepted bool // in this process the level took an Off
	proof    bmc.Proof
	deleted  bool // the request
}

// playTrace plays the lines of a story, and writes below each what came of it. Indented lines
// are answers, and made anew.
func playTrace(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	x := newTrace()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "    ") {
			continue
		}
		out.WriteString(line)
		verb, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "", "#":
		case "run":
			x.begin(t, args)
		case "order":
			x.order(t, args)
		case "restart":
			x.forget()
		case "look":
			out.WriteString(x.look(t, args))
		default:
			require.Fail(t, "no such line", line)
		}
	}
	return out.String()
}

func newTrace() *trace {
	r, s := begin(PowerOff, 0)
	l := r.Limits
	l.OnDeadline, l.ReadyTimeout, l.RestoreTimeout = 3*time.Minute, 20*time.Minute, 10*time.Minute // as power: has them
	l.MaxAttempts = 1
	x := &trace{run: Run{ID: "r1", Strategy: PowerCycle, Isolation: IsolateDelete, Target: r.Target, Limits: l}, seen: s, now: noon}
	x.seen.Power, x.seen.PodsGone, x.seen.Restored, x.seen.Backup = bmc.Reading{State: bmc.On}, No, No, Backup{}
	x.forget()
	return x
}

// forget is a new process, or a new session with a BMC: it has proven nothing.
func (x *trace) forget() {
	x.accepted, x.proof = false, bmc.Proof{Spacing: 3 * time.Second, MaxAge: 5 * time.Second}
}

// pairs are the key=value pairs of a line; a value may be in quotes.
func pairs(t *testing.T, line string, each func(key, value string)) {
	t.Helper()
	rest := regexp.MustCompile(`(\w+)=("[^"]*"|\S+)\s*`).ReplaceAllStringFunc(line, func(pair string) string {
		key, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		each(key, strings.Trim(value, `"`))
		return ""
	})
	require.Empty(t, rest, "not understood")
}

func (x *trace) begin(t *testing.T, line string) {
	t.Helper()
	pairs(t, line, func(key, value string) {
		r := &x.run
		switch key {
		case "isolation":
			r.Isolation = Isolation(value)
		case "strategy":
			r.Strategy = Strategy(value)
		case "levels":
			r.Limits.Levels = len(strings.Split(value, ","))
		case "attempts":
			must.Do(fmt.Sscan(value, &r.Limits.MaxAttempts))(t)
		case "retry":
			d := must.Do(time.ParseDuration(value))(t)
			r.Limits.RetryInterval = d
		case "controlPlane":
			r.ControlPlane = value == "yes"
		case "offOnly":
			r.OffOnly = value == "yes"
		case "request":
			r.Request = &Request{Kind: "FencedRemediation", Name: value, UID: "q1"}
		case "metal3":
			r.Target.BareMetalHost = value
		case "node":
			require.Equal(t, "none", value)
			withoutNode(r)
			x.seen.Node, x.seen.Lease = Node{Exists: No}, Lease{Known: true}
		default:
			require.Fail(t, "a run has no "+key)
		}
	})
	x.run = Begin(x.run, x.now)
}

// order adds a person's order to the record, as the engine does.
func (x *trace) order(t *testing.T, line string) {
	t.Helper()
	o := &Order{Actor: "ann", Reason: "by hand", At: x.now}
	switch line {
	case "unfence":
		x.run.Unfence = o
	case "abort":
		x.run.Abort = o
	case "retry":
		x.run.Retry = o
	case "retry-by-fenced":
		x.run.Retry = &Order{Actor: SelfActor, Reason: "due", At: x.now}
	case "confirm-off":
		x.run.Confirmed = o
	default:
		require.Fail(t, "no such order", line)
	}
}

// look lets time pass, takes in what has changed since, and asks Next.
func (x *trace) look(t *testing.T, line string) string {
	t.Helper()
	after, changes, _ := strings.Cut(line, " ")
	d, err := time.ParseDuration(strings.TrimPrefix(after, "+"))
	require.NoError(t, err, "a look begins with the time since the one before")
	x.now = x.now.Add(d)
	pairs(t, changes, func(key, value string) { x.change(t, key, value) })
	before := x.run
	r, a, wait := Next(before, x.observation(), x.now)
	if r.Level != before.Level { // another session
		x.forget()
	}
	switch a {
	case SendOff, SendOn: // a command voids what was read before it
		x.forget()
		x.accepted = a == SendOff
	}
	x.run = r
	return x.answer(before, a, wait)
}

// observation is what the engine makes of the facts.
func (x *trace) observation() Observation {
	s := x.seen
	s.At, s.Power.At, s.Level = x.now, x.now, x.run.Level
	x.proof = x.proof.Add(s.Power)
	s.Proof, s.OffAccepted = x.proof, x.accepted
	if x.deleted { // as package admit has it
		if s.Withdrawn, s.WithdrawnWhy = No, ""; x.run.OutlivesRequest(s.Node) != Yes {
			s.Withdrawn, s.WithdrawnWhy = Yes, "the request is gone"
		}
	}
	if x.run.Level > 0 {
		s.Devices, s.ProofKind = "pdu-a#7", ProofDevice
	}
	if s.PowerError != "" || s.LevelRefusal != "" {
		s.Identity = CannotTell
	}
	if s.API != APIReachable {
		noAPI(&s)
		s.API = x.seen.API
	}
	return s
}

// change is one fact that a look finds changed.
func (x *trace) change(t *testing.T, key, value string) {
	t.Helper()
	s, yes := &x.seen, map[string]Answer{"yes": Yes, "no": No, "unknown": CannotTell}
	switch key {
	case "power":
		state, read := map[string]bmc.PowerState{"On": bmc.On, "Off": bmc.Off, "Unknown": bmc.Unknown}[value]
		s.Power.State, s.PowerError = state, ""
		if !read {
			s.PowerError = bmc.Kind(value)
		}
	case "entry":
		s.LevelRefusal = map[string]reason.Code{"moved": reason.AddressChanged}[value]
		s.Power.State = bmc.Unknown
	case "identity":
		s.Identity = yes[value]
	case "api":
		s.API = map[string]APIState{"answers": APIReachable, "forbids": APIForbidden, "lost": APIUnreachable}[value]
	case "node":
		x.node(t, value)
	case "ready":
		s.Node.Ready = yes[value]
	case "lease":
		s.Lease.ResourceVersion = value
	case "backup":
		s.Backup = Backup{UID: s.Node.UID, ResourceVersion: s.Node.ResourceVersion}
	case "pods":
		s.PodsGone = map[string]Answer{"bound": No, "gone": Yes}[value]
	case "restored":
		s.Restored, s.Node.OutOfService = yes[value], s.Node.OutOfService && value != "yes"
	case "request":
		s.Machine.Requested = value == "yes"
	case "machine":
		s.Machine.Exists, s.Machine.Deleting = AnswerOf(value != "gone"), value == "deleting"
		if value == "kept" {
			s.Machine.Replaceable, s.Machine.Why = No, "its host is externally provisioned"
		}
	case "justified":
		s.Justified, s.Why = yes[value], "the Node is Ready"
	case "asked":
		s.Withdrawn, s.WithdrawnWhy = AnswerOf(value != "yes"), value
	case "deleted":
		require.Equal(t, "request", value)
		x.deleted = true
	case "quorum":
		s.Quorum, s.QuorumWhy = yes[value], "2 of 3 members are healthy"
	case "lock":
		s.PowerLock = yes[value]
	case "otherLock":
		s.Contested, s.Contender, s.OtherPowerLock = Yes, "BareMetalHost ns/h carries the power request "+value, value
		if value == "none" {
			s.Contested, s.Contender, s.OtherPowerLock = No, "", ""
		}
	case "paused":
		s.Paused, s.PausedWhy = true, value
	case "renamed":
		s.RenamedTo = value
	default:
		require.Fail(t, "a look has no "+key)
	}
}

func (x *trace) node(t *testing.T, value string) {
	t.Helper()
	n := &x.seen.Node
	switch value {
	case "gone":
		*n = Node{Exists: No}
	case "tainted":
		n.OutOfService, n.ResourceVersion = true, "2"
	case "registered": // a new Node, from a new boot
		*n = Node{Exists: Yes, UID: "u2", ResourceVersion: "10", BootID: "b2", SystemUUID: "s", Ready: No}
	case "rebooted": // the same Node, from a new boot
		n.BootID, n.ResourceVersion = "b2", "11"
	default:
		require.Fail(t, "no such node", value)
	}
}

var timeInRecord = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`)

// answer writes what Next has changed in the record, what is to be done, and when to look again.
func (x *trace) answer(before Run, a Action, wait time.Duration) string {
	var b strings.Builder
	old, got := fields(before), fields(x.run)
	for _, key := range keys() {
		changed(&b, key, old[key], got[key])
	}
	if n := len(before.Steps); n > 0 && len(x.run.Steps) >= n && x.run.Steps[n-1].Note != before.Steps[n-1].Note {
		fmt.Fprintf(&b, "    journal %s: %s\n", before.Steps[n-1].Step, x.run.Steps[n-1].Note)
	}
	if a != Nothing {
		fmt.Fprintf(&b, "    action  %s\n", a)
	}
	if !x.run.Step.Ended() && wait > 0 {
		fmt.Fprintf(&b, "    wait    %s\n", wait)
	}
	return b.String()
}

// keys are those of the record that a story shows, in the record's order. The intent is the
// action, the journal has lines of its own, and the other two begin with each step or run.
func keys() (list []string) {
	for f := range reflect.TypeFor[Run]().Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch key {
		case "-", "intent", "steps", "stepStarted", "ended":
		default:
			list = append(list, key)
		}
	}
	return list
}

// fields are the record's as it is stored, with times as those since the run began.
func fields(r Run) map[string]any {
	data, err := json.Marshal(r)
	if err != nil {
		return nil
	}
	list := map[string]any{}
	if err := json.Unmarshal(timeInRecord.ReplaceAllFunc(data, sinceBegin), &list); err != nil {
		return nil
	}
	return list
}

func sinceBegin(quoted []byte) []byte {
	at, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(quoted))
	if err != nil {
		return quoted
	}
	since := at.Sub(noon).String()
	if !strings.HasPrefix(since, "-") {
		since = "+" + since
	}
	return []byte(`"` + since + `"`)
}

// changed writes one line for a field that has changed, and for an object that was there
// before one for each of its fields.
func changed(b *strings.Builder, key string, was, is any) {
	before, wasObject := was.(map[string]any)
	after, isObject := is.(map[string]any)
	if wasObject && isObject {
		for _, k := range slices.Sorted(maps.Keys(after)) {
			changed(b, key+"."+k, before[k], after[k])
		}
		return
	}
	if old, got := plain(was), plain(is); old != got {
		fmt.Fprintf(b, "    record  %s: %s\n", key, strings.TrimPrefix(old+" -> "+cmp.Or(got, "none"), " -> "))
	}
}

// plain is a value without quotes; "" where there is none.
func plain(v any) string {
	switch s, ok := v.(string); {
	case v == nil:
		return ""
	case ok:
		return s
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return strings.NewReplacer(`":`, ": ", `,"`, `, `, `"`, "").Replace(string(data))
}
