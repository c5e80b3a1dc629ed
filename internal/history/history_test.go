package history

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(minutes float64) time.Time { return noon.Add(time.Duration(minutes * float64(time.Minute))) }

// day is the period of most tests: from a day before noon to a day after.
var day = Period{Since: noon.Add(-24 * time.Hour), Until: noon.Add(24 * time.Hour)}

// entry is one of n-1 in prod, at some minutes after noon.
func entry(minutes float64, typ string, change ...func(*audit.Entry)) audit.Entry {
	e := audit.Entry{At: at(minutes), Type: typ, Cluster: "prod", Node: "n-1", Check: "MachineHealthCheck ns/workers"}
	for _, f := range change {
		f(&e)
	}
	return e
}

func why(code string) func(*audit.Entry)  { return func(e *audit.Entry) { e.Reason = code } }
func of(node string) func(*audit.Entry)   { return func(e *audit.Entry) { e.Node = node } }
func run(id string) func(*audit.Entry)    { return func(e *audit.Entry) { e.Run = id } }
func step(s string) func(*audit.Entry)    { return func(e *audit.Entry) { e.Step = s } }
func says(text string) func(*audit.Entry) { return func(e *audit.Entry) { e.Message = text } }
func saw(text string) func(*audit.Entry)  { return func(e *audit.Entry) { e.Inputs = text } }
func by(check string) func(*audit.Entry)  { return func(e *audit.Entry) { e.Check = check } }
func began(minutes float64) audit.Entry   { return audit.Entry{At: at(minutes), Type: audit.Opened} }
func mode(m float64, s string) audit.Entry {
	return entry(m, event.ModeChanged, of(""), by(""), saw("mode="+s))
}

func reported(p Period, now Now, entries ...audit.Entry) wire.PeriodReport {
	h := New(p)
	for _, e := range entries {
		h.Add(e)
	}
	return h.Report(now)
}

// A fence from hang to Done: the run, its proof, and how long each phase took.
func TestFencedNode(t *testing.T) {
	r := reported(day, Now{}, began(-1440), mode(-1440, "evaluate"),
		entry(0, event.Started, run("r-1"), step("PowerOff"), says("check ns/workers: Ready is Unknown"), saw("unhealthySince="+at(-5).Format(time.RFC3339))),
		entry(0.5, event.Acting, run("r-1"), step("PowerOff"), func(e *audit.Entry) { e.Action = "SendOff"; e.Inputs = "level=1 power=On proof=Human proven=false" }),
		entry(1, event.Stepped, run("r-1"), step("DeleteNode")),
		entry(1, event.Acting, run("r-1"), step("DeleteNode"), func(e *audit.Entry) {
			e.Action = "IsolateNode"
			e.Inputs = `level=1 power=Off raw="off" proof=BMC proven=true`
		}),
		entry(2, event.Stepped, run("r-1"), step("PowerOn")),
		entry(3, event.Stepped, run("r-1"), step("AwaitNode")),
		entry(7, event.Stepped, run("r-1"), step("RestoreNode")),
		entry(8, event.Stepped, run("r-1"), step("Done")),
		entry(30, event.Started, run("r-2"), step("PowerOff"), by(""), says("manual fence by anna")),
		entry(40, event.Stepped, run("r-2"), step("Waiting"), why("BMCUnreachable")),
		entry(50, event.Stepped, run("r-2"), step("PowerOff")),
		entry(60, event.Stepped, run("r-2"), step("Held"), why("PowerOffFailed")),
	)
	assert.Equal(t, map[string]int{"Done": 1, "Held": 1}, r.Fenced.ByResult)
	require.Len(t, r.Fenced.Runs, 2)
	assert.Equal(t, wire.PeriodRun{ID: "r-1", Cluster: "prod", Node: "n-1", Trigger: "check ns/workers: Ready is Unknown", By: "fenced", Proof: "BMC",
		Result: "Done", Started: at(0), Ended: at(8)}, r.Fenced.Runs[0])
	assert.Equal(t, []string{"a person", "Held", "PowerOffFailed"}, []string{r.Fenced.Runs[1].By, r.Fenced.Runs[1].Result, r.Fenced.Runs[1].Reason})
	took := map[string]float64{}
	for _, p := range r.Phases {
		assert.Equal(t, 1, p.Count, "%s: a stay that ends in Waiting or Held is no phase", p.Phase)
		assert.NotEmpty(t, p.Means)
		took[p.Phase] = p.MedianSeconds / 60
	}
	assert.Equal(t, map[string]float64{"Detection": 5, "PowerOff": 1, "DeleteNode": 1, "PowerOn": 1, "AwaitNode": 4, "RestoreNode": 1, "Run": 8}, took)
	assert.Equal(t, []string{"The evidence covers all of the last 2 days.", "Cluster prod was in mode evaluate for 2 days.", "2 runs began: 1 Done and 1 Held."}, r.Summary)
}

// The records of the state say who ordered a run, what proved it and when, and which runs the log does not have.
func TestRunsOfTheState(t *testing.T) {
	stored := []wire.RunRecord{
		{ID: "r-1", Cluster: "prod", Node: "n-1", Actor: "anna (uid 1000)", Proof: "Human", Result: "Done", Started: at(0), Ended: at(8)},
		{ID: "r-2", Cluster: "prod", Node: "n-2", Proof: "BMC", Result: "Done", Started: at(1), Ended: at(9), OffReads: []wire.OffRead{{At: at(1)}, {At: at(1.5)}}},
		{ID: "r-3", Cluster: "lab", Node: "n-3", Result: "Done", Started: at(1), Ended: at(9)},
		{ID: "r-4", Cluster: "prod", Node: "n-4", Result: "Done", Started: at(-9999), Ended: at(9)},
		{ID: "r-5", Cluster: "prod", Node: "n-5", Result: "Held", Reason: "FalseOff", Started: at(2)},
	}
	p := day
	p.Cluster = "prod"
	r := reported(p, Now{Runs: stored}, began(-1440), entry(0, event.Started, run("r-1"), step("PowerOff"), by("")), entry(8, event.Stepped, run("r-1"), step("Done")),
		entry(9, event.Started, run("r-9"), func(e *audit.Entry) { e.Cluster = "lab" }))
	assert.Equal(t, 3, r.Fenced.Count)
	assert.Equal(t, map[string]int{"Done": 2, "Held": 1}, r.Fenced.ByResult)
	assert.Equal(t, []string{"anna (uid 1000)", "Human"}, []string{r.Fenced.Runs[0].By, r.Fenced.Runs[0].Proof})
	assert.Equal(t, 2, r.Evidence.RunsOfState)
	assert.Equal(t, "Proof", r.Phases[1].Phase)
	assert.Equal(t, wire.Times{Count: 1, MedianSeconds: 30, P95Seconds: 30, MaxSeconds: 30}, r.Phases[1].Times)
	assert.Contains(t, strings.Join(r.Summary, "\n"), "does not have 2 runs that the state has")
}

// A run whose start was recorded too late was not started: no run of this name goes on for ever.
func TestRunThatWasNotStarted(t *testing.T) {
	r := reported(day, Now{}, began(-1440), entry(0, event.Started, run("r-1"), step("PowerOff")),
		entry(0, event.Failed, run("r-1"), says(event.NotStarted+"the audit log may have the start nevertheless")),
		entry(1, event.Started, run("r-2"), step("PowerOff")), entry(2, event.Failed, run("r-2"), says("save the run: x")),
		entry(3, event.Failed, run("r-3"), says(event.NotStarted+"its start came into no log")))
	assert.Equal(t, 1, r.Fenced.Count)
	assert.Equal(t, map[string]int{"Running": 1}, r.Fenced.ByResult)
	require.Len(t, r.Fenced.Runs, 1)
	assert.Equal(t, "r-2", r.Fenced.Runs[0].ID)
}

// A run that began here and went on at another instance is what the state says: its log has the rest. What is later than the period is none of it.
func TestRunThatAnotherInstanceEnded(t *testing.T) {
	r := reported(day, Now{Runs: []wire.RunRecord{
		{ID: "r-1", Cluster: "prod", Node: "n-1", Proof: "BMC", Result: "Done", Started: at(0), Ended: at(8)},
		{ID: "r-2", Cluster: "prod", Node: "n-2", Result: "Held", Reason: "FalseOff", Started: at(1)},
		{ID: "r-3", Cluster: "prod", Node: "n-3", Result: "Done", Started: at(2), Ended: day.Until.Add(time.Hour)},
	}}, began(-1440), entry(0, event.Started, run("r-1"), step("PowerOff")), entry(1, event.Started, run("r-2"), step("PowerOff"), of("n-2")),
		entry(2, event.Started, run("r-3"), step("PowerOff"), of("n-3")))
	assert.Equal(t, map[string]int{"Done": 1, "Held": 1, "Running": 1}, r.Fenced.ByResult)
	require.Len(t, r.Fenced.Runs, 3)
	assert.Equal(t, []any{"Done", at(8)}, []any{r.Fenced.Runs[0].Result, r.Fenced.Runs[0].Ended})
	assert.Equal(t, []string{"Held", "FalseOff"}, []string{r.Fenced.Runs[1].Result, r.Fenced.Runs[1].Reason})
	assert.Equal(t, []any{"Running", time.Time{}}, []any{r.Fenced.Runs[2].Result, r.Fenced.Runs[2].Ended})
	assert.Zero(t, r.Evidence.RunsOfState)
}

// A run that waits because fenced only observes by then, and is aborted, fenced nobody.
func TestWaitingRunThatIsAborted(t *testing.T) {
	for end, outcome := range map[string]string{"Aborted": wire.OutcomeRecovered, "PowerOff": wire.OutcomeFenced} {
		r := reported(day, Now{}, began(-1440), entry(0, event.Started, run("r-1"), step("PowerOff")), entry(1, event.Stepped, run("r-1"), step("Waiting"), why("BMCUnreachable")),
			entry(2, event.Refused, run("r-1"), why("Observing")), entry(10, event.Stepped, run("r-1"), step(end)))
		assert.Equal(t, map[string]int{outcome: 1}, r.Would.ByOutcome, end)
	}
}

// What would have been fenced, and what became of it.
func TestWouldHaveFenced(t *testing.T) {
	seen := why("Observing")
	over := func(m float64, change ...func(*audit.Entry)) audit.Entry {
		return entry(m, event.RefusalEnded, append([]func(*audit.Entry){seen}, change...)...)
	}
	r := reported(day, Now{}, began(-1440), mode(-1440, "observe"),
		entry(0, event.Refused, seen), over(4),
		entry(60, event.Refused, seen), over(62),
		entry(60, event.Refused, seen, of("n-2"), by("a")), entry(61, event.Refused, seen, of("n-2"), by("b")), over(62, of("n-2"), by("a")), over(70, of("n-2"), by("b")),
		entry(80, event.Refused, seen, of("n-3")), entry(81, event.Refused, why("ShortCircuit"), of("n-3")),
		entry(90, event.Refused, seen, of("n-4")), entry(91, event.Started, run("r-1"), of("n-4"), step("PowerOff")),
		entry(100, event.Refused, why("ShortCircuit"), of("n-5")), over(101, of("n-5")),
	)
	w := r.Would
	assert.Equal(t, 5, w.Count)
	assert.Equal(t, 4, w.Targets)
	assert.Equal(t, map[string]int{"Recovered": 3, "Open": 1, "Fenced": 1}, w.ByOutcome)
	assert.Equal(t, wire.Times{Count: 3, MedianSeconds: 240, P95Seconds: 600, MaxSeconds: 600}, w.Recovery)
	assert.Equal(t, wire.ObservedTarget{Cluster: "prod", Node: "n-1", Check: "MachineHealthCheck ns/workers", From: at(0), To: at(4), Seconds: 240, Outcome: "Recovered"}, w.List[0])
	require.Len(t, r.Refused, 1, "what was only observed is not refused")
	assert.Equal(t, wire.RefusedReason{Reason: "ShortCircuit", Class: "transient", Count: 2, Targets: 2, LongestSeconds: 1440*60 - 81*60, TotalSeconds: 1440*60 - 80*60}, r.Refused[0])
	assert.Contains(t, r.Summary, "fenced would have fenced 5 times on 4 Nodes or Machines, had it been armed and had the other gates held.")
	assert.Contains(t, strings.Join(r.Summary, "\n"), "3 of these ended without fenced: no check asked for them any more, half of them within 4 min, the slowest after 10 min. They recovered, or somebody else helped")
}

// What is refused, for how long, by class, now; orders that were refused; and a Waiting run.
func TestRefusedReasons(t *testing.T) {
	r := reported(day, Now{Blocked: []wire.Blocked{{Cluster: "prod", Reason: "BMCUnreachable"}, {Cluster: "prod", Reason: "Observing"}}}, began(-1440),
		entry(0, event.Refused, why("QuietPeriod")), entry(1, event.Refused, why("BMCUnreachable")),
		entry(5, event.Refused, why("Hold"), of("n-2")), entry(6, event.Started, run("r-1"), of("n-2"), step("PowerOff")),
		entry(7, event.Stepped, run("r-1"), of("n-2"), step("Waiting")), entry(8, event.Refused, run("r-1"), of("n-2"), why("Paused")), entry(9, event.Stepped, run("r-1"), of("n-2"), step("PowerOff")),
		entry(10, event.Refused, by(""), why("Quarantined"), of("n-3")),
		entry(10, event.Refused, by(""), why("NotOwner"), of("")), // of the whole cluster: no check wanted anything
		entry(11, event.Ordered, by(""), why("NotAuthorised")), entry(11, event.Ordered, by("")),
		entry(12, event.Ordered, by(""), why("NotAuthorised"), func(e *audit.Entry) { e.Cluster = "" }), // a pause of all
	)
	got := map[string]wire.RefusedReason{}
	for _, in := range r.Refused {
		got[in.Reason] = in
	}
	assert.Equal(t, wire.RefusedReason{Reason: "QuietPeriod", Class: "transient", Count: 1, Targets: 1, LongestSeconds: 60, TotalSeconds: 60}, got["QuietPeriod"])
	assert.Equal(t, 1, got["BMCUnreachable"].Now)
	assert.InDelta(t, 1439*60, got["BMCUnreachable"].TotalSeconds, 1)
	assert.InDelta(t, 60, got["Hold"].TotalSeconds, 0)
	assert.InDelta(t, 60, got["Paused"].TotalSeconds, 0)
	assert.Equal(t, wire.RefusedReason{Reason: "Quarantined", Class: "person", Count: 1, Targets: 1}, got["Quarantined"])
	assert.Equal(t, 2, got["NotAuthorised"].Orders)
	assert.NotContains(t, got, "Observing")
	assert.NotContains(t, got, "NotOwner")
	assert.Len(t, got, 6)
}

// A BMC that leaves the inventory while it is not dependable has an outage that ends then: nobody has looked since.
func TestOutageOfABMCEndsWithIt(t *testing.T) {
	r := reported(day, Now{}, began(-1440), entry(0, sweep.EventBMC, why("BMCAuth"), says("BMC ipmi://a of n-1 is not dependable: x")),
		entry(20, sweep.EventBMC, says("BMC ipmi://a of n-1 is not checked any more: it has left the inventory")))
	require.Len(t, r.BMCs.Outages, 1)
	assert.Equal(t, []any{"ipmi://a of n-1", 1200.0, false}, []any{r.BMCs.Outages[0].Device, r.BMCs.Outages[0].TotalSeconds, r.BMCs.Outages[0].Lasts})
}

// After a restart what is still so is told again. What is not, ended when nobody looked.
func TestRestart(t *testing.T) {
	restart := func(m, used float64) audit.Entry {
		e := began(m)
		e.Message = "the log was last in use at " + at(used).Format(time.RFC3339)
		return e
	}
	r := reported(day, Now{}, began(-1440),
		entry(0, event.Refused, why("Observing")), entry(0, event.Refused, why("Observing"), of("n-2")),
		entry(0, sweep.EventBMC, why("BMCAuth"), says("BMC ipmi://a of n-1 is not dependable: x")), entry(0, sweep.EventBMC, why("BMCAuth"), of("n-2"), says("BMC ipmi://b of n-2 is not dependable: x")),
		restart(30, 20), entry(31, event.Refused, why("Observing")), entry(31, sweep.EventBMC, why("BMCAuth"), says("BMC ipmi://a of n-1 is not dependable: x")),
		entry(60, event.RefusalEnded), entry(60, sweep.EventBMC, says("BMC ipmi://a of n-1 is dependable again")),
		entry(70, event.Refused, why("Observing"), of("n-2")))
	assert.Equal(t, map[string]int{"Recovered": 1, "Unknown": 1, "Open": 1}, r.Would.ByOutcome)
	assert.Equal(t, []wire.ObservedTarget{
		{Cluster: "prod", Node: "n-1", Check: "MachineHealthCheck ns/workers", From: at(0), To: at(60), Seconds: 3600, Outcome: "Recovered"},
		{Cluster: "prod", Node: "n-2", Check: "MachineHealthCheck ns/workers", From: at(0), To: at(20), Seconds: 1200, Outcome: "Unknown"},
	}, r.Would.List[:2])
	require.Len(t, r.BMCs.Outages, 2)
	assert.Equal(t, wire.BMCOutage{Cluster: "prod", Node: "n-1", Device: "ipmi://a of n-1", Count: 1, LongestSeconds: 3600, TotalSeconds: 3600,
		GoodShare: 1 - 3600.0/(48*3600-600), Reason: "BMCAuth"}, r.BMCs.Outages[0])
	assert.InDelta(t, 1200, r.BMCs.Outages[1].TotalSeconds, 0, "it is not known to have lasted longer")
	assert.InDelta(t, 48*3600-600, r.Evidence.CoveredSeconds, 0)
	assert.Equal(t, "The evidence covers 1 day 23 h of a period of 2 days.", r.Summary[0])
}

// The report says first how far the log reaches, and where it is broken, whatever was asked for.
func TestEvidence(t *testing.T) {
	month := Period{Since: noon.Add(-30 * 24 * time.Hour), Until: noon}
	r := reported(month, Now{}, began(-1440))
	assert.Equal(t, "The evidence covers 1 day of a period of 30 days. The audit log begins at 2026-02-28T12:00:00Z.", r.Summary[0])
	assert.Equal(t, at(-1440), r.Evidence.From)
	require.Len(t, r.Evidence.Gaps, 1)

	r = reported(month, Now{})
	assert.Equal(t, "The evidence covers 0 s of a period of 30 days. The audit log says nothing about the period.", r.Summary[0])

	h := New(day)
	h.Add(began(-2000))
	h.Add(entry(0, event.Refused, why("Observing")))
	h.AddBreak(audit.Break{After: 2, Next: 9, From: at(0), To: at(60), What: "the line was changed"})
	h.Add(entry(100, audit.Lost, says("3 entries could not be written"), of(""), by("")))
	h.Add(entry(200, event.ViewChanged, of(""), by(""), says("the API server is silent")))
	h.Add(entry(230, event.ViewChanged, of(""), by("")))
	r = h.Report(Now{})
	assert.Equal(t, map[string]int{"Unknown": 1}, r.Would.ByOutcome)
	assert.InDelta(t, 48*3600-100*60, r.Evidence.CoveredSeconds, 0, "what may be missing is no evidence, what was not seen is listed")
	require.Len(t, r.Evidence.Gaps, 3)
	assert.Equal(t, wire.EvidenceGap{From: at(200), To: at(230), Cluster: "prod", What: "fenced did not see the cluster: the API server is silent"}, r.Evidence.Gaps[2])
	assert.Contains(t, r.Summary, "The audit log is broken in 1 place: see the gaps, and run fencectl audit verify.")
}

func TestLimitsAndModes(t *testing.T) {
	check := of("")
	r := reported(day, Now{}, began(-1440), mode(-1440, "observe"), mode(0, "observe"), mode(60, "observe,armed"),
		entry(1, event.LimitNear, check, says("near")), entry(2, event.LimitClosed, check, why("ShortCircuit")), entry(12, event.LimitOpened, check), entry(20, event.LimitClosed, check, why("ShortCircuit")))
	require.Len(t, r.Limits, 1)
	l := r.Limits[0]
	assert.Equal(t, []int{1, 2}, []int{l.Near, l.Closed})
	assert.True(t, l.Lasts)
	assert.InDelta(t, 1420*60, l.LongestSeconds, 0)
	assert.Equal(t, []wire.ModeSpan{
		{Cluster: "prod", Mode: "observe", From: at(-1440), To: at(60), Seconds: 1500 * 60},
		{Cluster: "prod", Mode: "observe,armed", From: at(60), Seconds: 1380 * 60},
	}, r.Modes)
	assert.Contains(t, r.Summary, "Cluster prod was in mode observe for 1 day 1 h and observe, armed for 23 h.")
	assert.Contains(t, r.Summary, "Limits of checks were nearly reached 1 time and closed 2 times, at most for 23 h 40 min.")
}

// A check that is deleted while its limit is closed, or whose file goes, has no limit any more. One of the same name begins anew.
func TestClosedLimitEndsWithItsCheck(t *testing.T) {
	check := of("")
	r := reported(day, Now{}, began(-1440), entry(0, event.LimitClosed, check, why("ShortCircuit")),
		entry(10, event.CheckChanged, check, why("Paused"), says("check ns/workers is Paused: x")), // it opens, or stays closed, when it is Active again
		entry(20, event.CheckChanged, check, why("NotCovered"), says("check ns/workers is gone: it protects no target any more")),
		entry(60, event.LimitClosed, check, why("ShortCircuit")), entry(65, event.LimitOpened, check))
	require.Len(t, r.Limits, 1)
	l := r.Limits[0]
	assert.Equal(t, []any{2, 1200.0, 1500.0, false}, []any{l.Closed, l.LongestSeconds, l.TotalSeconds, l.Lasts})
}

// A cluster whose mode a start does not tell is not configured any more: its mode ended with the daemon before.
func TestModeOfAClusterThatIsGone(t *testing.T) {
	gone := mode(-1000, "evaluate")
	gone.Cluster = "old"
	start := began(60)
	start.Message = "the log was last in use at " + at(50).Format(time.RFC3339)
	r := reported(day, Now{}, began(-1440), mode(-1000, "observe"), gone, start, mode(61, "observe"))
	assert.Equal(t, []wire.ModeSpan{
		{Cluster: "old", Mode: "evaluate", From: at(-1000), To: at(50), Seconds: 1050 * 60},
		{Cluster: "prod", Mode: "observe", From: at(-1000), Seconds: 2440 * 60},
	}, r.Modes)
}

// A reload that removes a cluster ends all that was so in it: nobody looks there any more.
func TestClusterThatAReloadRemoves(t *testing.T) {
	unseen := entry(20, event.ViewChanged, of(""), by(""), says("the API server is silent"))
	r := reported(day, Now{}, began(-1440), mode(-1440, "observe"), entry(0, event.Refused, why("Observing")), entry(0, event.Refused, why("Hold"), of("n-2")),
		entry(0, event.LimitClosed, of(""), why("ShortCircuit")), unseen, mode(60, ""), entry(70, event.LimitOpened, of("")))
	assert.Equal(t, []wire.ModeSpan{{Cluster: "prod", Mode: "observe", From: at(-1440), To: at(60), Seconds: 1500 * 60}}, r.Modes)
	assert.Equal(t, map[string]int{"Unknown": 1}, r.Would.ByOutcome)
	require.Len(t, r.Refused, 1)
	assert.InDelta(t, 3600, r.Refused[0].TotalSeconds, 0)
	require.Len(t, r.Limits, 1)
	assert.Equal(t, []any{3600.0, false}, []any{r.Limits[0].TotalSeconds, r.Limits[0].Lasts})
	require.Len(t, r.Evidence.Gaps, 1)
	assert.Equal(t, at(60), r.Evidence.Gaps[0].To)
}

// What a log of arbitrary entries says adds up, and is within the period.
func TestLawsOfAReport(t *testing.T) {
	types := []string{event.Started, event.Stepped, event.Stepped, event.Refused, event.Refused, event.RefusalEnded, event.LimitClosed, event.LimitOpened, event.LimitNear, event.CheckChanged, sweep.EventBMC,
		event.ModeChanged, event.ViewChanged, event.Ordered, event.Acting, audit.Opened, audit.Lost}
	law.Check(t, func(t *rapid.T) {
		h, minute, p := New(day), -3000.0, day
		for range rapid.IntRange(0, 60).Draw(t, "entries") {
			minute += rapid.Float64Range(-1, 200).Draw(t, "later")
			if rapid.IntRange(0, 20).Draw(t, "broken") == 0 {
				h.AddBreak(audit.Break{After: 1, Next: 3, From: at(minute - 1), To: at(minute)})
			}
			e := entry(minute, rapid.SampledFrom(types).Draw(t, "type"), of(rapid.SampledFrom([]string{"n-1", "n-2"}).Draw(t, "node")), by(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "check")),
				run(rapid.SampledFrom([]string{"", "r-1", "r-2", "r-3"}).Draw(t, "run")), why(rapid.SampledFrom([]string{"", "Observing", "Hold", "Paused", "NotCovered"}).Draw(t, "reason")),
				step(rapid.SampledFrom([]string{"PowerOff", "DeleteNode", "Waiting", "Held", "Done", "Aborted"}).Draw(t, "step")), saw(rapid.SampledFrom([]string{"", "mode=", "mode=observe", "mode=evaluate"}).Draw(t, "inputs")))
			h.Add(e)
		}
		r := h.Report(Now{})
		length := p.Until.Sub(p.Since).Seconds()
		assert.Equal(t, r.Fenced.Count, sum(r.Fenced.ByResult))
		assert.Len(t, r.Fenced.Runs, r.Fenced.Count)
		assert.Equal(t, r.Would.Count, sum(r.Would.ByOutcome))
		assert.Len(t, r.Would.List, r.Would.Count)
		assert.Equal(t, r.Would.ByOutcome[wire.OutcomeRecovered], r.Would.Recovery.Count)
		assert.LessOrEqual(t, r.Would.Targets, r.Would.Count)
		for _, o := range r.Would.List {
			assert.Equal(t, o.Outcome == wire.OutcomeOpen, o.To.IsZero())
			assert.GreaterOrEqual(t, o.Seconds, 0.0)
		}
		within := func(s float64) { assert.True(t, s >= 0 && s <= length, "%v of %v", s, length) }
		within(r.Evidence.CoveredSeconds)
		for _, in := range r.Refused {
			within(in.LongestSeconds)
			assert.LessOrEqual(t, in.LongestSeconds, in.TotalSeconds+1e-6)
			assert.LessOrEqual(t, in.Targets, in.Count)
			assert.NotEqual(t, "Observing", in.Reason)
		}
		for _, l := range r.Limits {
			within(l.TotalSeconds)
		}
		for _, b := range r.BMCs.Outages {
			within(b.TotalSeconds)
			assert.True(t, b.GoodShare >= 0 && b.GoodShare <= 1)
		}
		modes := 0.0
		for _, m := range r.Modes {
			modes += m.Seconds
		}
		within(max(0, modes-1e-6))
		for _, ph := range r.Phases {
			assert.True(t, ph.MedianSeconds <= ph.P95Seconds && ph.P95Seconds <= ph.MaxSeconds)
		}
		assert.True(t, strings.HasPrefix(r.Summary[0], "The evidence covers "))
	})
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// However long the log is, what is kept of it is limited.
func TestHistoryIsLimited(t *testing.T) {
	h := New(day)
	for i := range 3 * maxOpen {
		id := fmt.Sprint("r-", i)
		h.Add(entry(float64(i)/1e5, event.Started, run(id), of(id), step("PowerOff")))
		h.Add(entry(float64(i)/1e5, event.Refused, of(id+"x"), why("Observing")))
		h.Add(entry(float64(i)/1e5, sweep.EventBMC, of(id), says("BMC "+id+" is not dependable: x"), why("x")))
	}
	assert.Len(t, h.runs.open, maxOpen)
	assert.Len(t, h.refusals.open, maxOpen)
	assert.Len(t, h.bmcs.of, maxKeys)
	r := h.Report(Now{})
	assert.Len(t, r.Fenced.Runs, maxShown)
	assert.Len(t, r.Would.List, maxShown)
	assert.Len(t, r.BMCs.Outages, maxShown)
	assert.Equal(t, maxOpen, r.Fenced.Count, "what is not followed is not counted, and said")
	assert.Positive(t, r.Evidence.Dropped)
	assert.Contains(t, strings.Join(r.Summary, "\n"), "There was too much at the same time")
}

// What is kept of runs that have ended is limited too, and no run of the state counts again because its ID is forgotten.
func TestEndedRunsAreLimited(t *testing.T) {
	h := New(day)
	const many = 3*maxKeys + 1
	for i := range many {
		id, m := fmt.Sprint("r-", i), float64(i)/1e3
		h.Add(entry(m, event.Refused, of(id), why("Observing")))
		h.Add(entry(m, event.RefusalEnded, of(id), why("Observing")))
		h.Add(entry(m, event.Started, run(id), of(id), step("PowerOff")))
		h.Add(entry(m+float64(1+i%2), event.Stepped, run(id), of(id), step("Done")))
	}
	assert.LessOrEqual(t, len(h.runs.known)+len(h.runs.knownBefore), 2*maxKeys)
	assert.LessOrEqual(t, len(h.runs.samples[phaseRun].list), 2*maxKeys)
	assert.LessOrEqual(t, len(h.refusals.took.list), 2*maxKeys)
	r := h.Report(Now{Runs: []wire.RunRecord{{ID: "r-0", Cluster: "prod", Started: at(0), Ended: at(1)}, {ID: fmt.Sprint("r-", many-1), Cluster: "prod", Started: at((many - 1) / 1e3), Ended: at(99)}}})
	assert.Equal(t, many, r.Fenced.Count)
	assert.Zero(t, r.Evidence.RunsOfState)
	assert.Equal(t, many, r.Would.Recovery.Count)
	run := r.Phases[len(r.Phases)-1]
	assert.Equal(t, many, run.Count)
	assert.InDelta(t, 120, run.MaxSeconds, 0.001)
}

// BenchmarkMillionEntries reports a log of a million entries, as fenced reads it: 2000 Nodes, of which each is refused and recovers, or
// is fenced, again and again.
func BenchmarkMillionEntries(b *testing.B) {
	const entries = 1_000_000
	path := filepath.Join(b.TempDir(), "audit.jsonl")
	l := must.Do(audit.Open(path, audit.Options{Origin: audit.Origin{Version: "test", Host: "fenced-1", Store: "store"}}))(b)
	gates := []audit.Gate{{Name: "limit", Pass: false, Reason: "ShortCircuit", Value: "3 of 10 not healthy", Threshold: "at most 2 (20%)"}}
	for i := range entries {
		e := entry(0, event.Refused, of(fmt.Sprint("worker-", i/2%2000)), why("ShortCircuit"), says("limit: 3 of 10 not healthy (needs at most 2 (20%), MachineHealthCheck ns/workers)"))
		e.Gates = gates
		if i%2 == 1 {
			e.Type, e.Message, e.Gates = event.RefusalEnded, "what was refused is no longer asked for", nil
		}
		if i%1000 < 999 {
			l.Add(e)
		} else { // the queue is short
			must.Do(l.Append(b.Context(), e))(b)
		}
	}
	require.NoError(b, l.Close())
	for b.Loop() {
		h, n := New(Period{Since: time.Now().Add(-24 * time.Hour), Until: time.Now()}), 0
		require.NoError(b, audit.Select(b.Context(), path, audit.Query{}, func(e audit.Entry) error { n++; h.Add(e); return nil }, func(audit.Break) error { return nil }))
		require.Greater(b, n, entries)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		kept := float64(m.HeapAlloc) / (1 << 20)
		require.Less(b, kept, 64.0, "docs/performance.md")
		b.ReportMetric(kept, "MiB-kept")
		require.Equal(b, entries/2, h.Report(Now{}).Refused[0].Count)
	}
}
