package page

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// runView is a run as it is shown. File: in a file, where nothing is linked.
type runView struct {
	wire.RunRecord
	File  bool
	Tag   string // class of the result
	Took  string
	Bars  []stepBar
	Stays []stay
	// Reads are the reads of Off; ReadsNote says which is awaited.
	Reads     []wire.OffRead
	ReadsNote string
	Next      string // the command that comes next
	NextTry   time.Time
}

// stepBar is one of the six steps.
type stepBar struct {
	N           int
	Name, Class string // Class: done, open, late, or empty for one that was not reached
	Word        string // its state, in a word
	Attempt     int
	Took        string
	// Of one that is open: since when, and by when it must end. From and Until are its Unix times.
	Deadline    time.Time
	From, Until int64
	Value       int64 // seconds of it that are over
}

// stay is one stay in a step. X and Width place it in the time of the whole run, in thousandths.
type stay struct {
	wire.StepRecord
	Took, Class string
	Deadline    time.Time
	X, Width    int
}

func viewOf(r wire.RunRecord, now time.Time) runView {
	v := runView{RunRecord: r, Tag: tagOf(r.Result), Took: Span(cmp.Or(r.Ended, now).Sub(r.Started)), Reads: r.OffReads}
	for i, step := range remediate.Steps {
		v.Bars = append(v.Bars, barOf(r, i+1, string(step), now))
	}
	whole := max(cmp.Or(r.Ended, now).Sub(r.Started), 1)
	at := func(t time.Time) int { return int(1000 * min(1, max(0, float64(t.Sub(r.Started))/float64(whole)))) }
	for _, s := range r.Steps {
		end := cmp.Or(s.Ended, now)
		one := stay{StepRecord: s, Took: Span(end.Sub(s.Started)), Class: "ok", X: at(s.Started)}
		one.Width = max(4, at(end)-one.X)
		one.X = min(one.X, 1000-one.Width)
		switch {
		case s.Ended.IsZero():
			one.Class, one.Deadline = "busy", r.Deadline
		case !reached(s):
			one.Class = "warn"
		}
		v.Stays = append(v.Stays, one)
	}
	if len(v.Reads) == 1 && r.Ended.IsZero() {
		v.ReadsNote = "the second read is awaited"
	}
	return v
}

// barOf shows the last stay in a step.
func barOf(r wire.RunRecord, n int, name string, now time.Time) stepBar {
	b := stepBar{N: n, Name: name, Word: "to come"}
	if !r.Ended.IsZero() {
		b.Word = "not needed"
	}
	i := len(r.Steps) - 1
	for ; i >= 0 && r.Steps[i].Step != name; i-- {
	}
	if i < 0 {
		return b
	}
	s := r.Steps[i]
	b.Attempt, b.Took = s.Attempt, Span(cmp.Or(s.Ended, now).Sub(s.Started))
	switch {
	case !s.Ended.IsZero():
		b.Class, b.Word = "done", "done"
		if !reached(s) {
			b.Class, b.Word = "late", "goal not reached"
		}
		return b
	case r.Deadline.IsZero():
		b.Class, b.Word = "open", "open"
		return b
	}
	b.Class, b.Word, b.Deadline = "open", "open", r.Deadline
	b.From, b.Until = s.Started.Unix(), max(r.Deadline.Unix(), s.Started.Unix()+1)
	b.Value = min(b.Until-b.From, max(0, now.Unix()-b.From))
	if now.After(r.Deadline) {
		b.Class, b.Word = "late", "past its deadline"
	}
	return b
}

// reached says whether a stay that has ended reached the goal of its step: then there is no note. Only step 2 notes, too, why the host stays
// off once the Node is isolated.
func reached(s wire.StepRecord) bool {
	code, _, _ := strings.Cut(s.Note, ":")
	return s.Note == "" || s.Step == "DeleteNode" && slices.Contains([]reason.Code{reason.OperatorOff, reason.FoundOff, reason.ConfirmedOff}, reason.Code(code))
}

// tagOf is the class of a result.
func tagOf(result string) string {
	switch result {
	case wire.ResultDone, wire.ResultReprovisioned:
		return "good"
	case wire.ResultHeld:
		return "bad"
	case wire.ResultRunning:
		return "busy"
	}
	return "warn"
}

// timelineView is one run with what happened beside it, or the runs of a Node.
type timelineView struct {
	Title   string
	File    bool
	Runs    []runView
	Notes   []wire.Note
	Blocked []wire.Blocked
	Audit   *Audit
}

// Audit is what the audit log has about a run.
type Audit struct {
	Entries []audit.Entry // the newest
	More    int           // how many more there are, before them
	Problem string        // why it was not read, or not to its end
}

// Of the audit log: how many entries are shown, and how far beside the run they may be.
const (
	maxEntries  = 500
	besideAudit = time.Hour
)

// ReadAudit reads what the audit log has about a run. What goes wrong stands in the answer: the run is shown without it.
func ReadAudit(ctx context.Context, client *api.Client, r wire.RunRecord) *Audit {
	a := &Audit{}
	q := audit.Query{Run: r.ID, Since: r.Started.Add(-besideAudit)}
	if !r.Ended.IsZero() {
		q.Until = r.Ended.Add(besideAudit)
	}
	for line, err := range client.Audit(ctx, q) {
		switch {
		case err != nil:
			a.Problem = err.Error()
		case line.Entry != nil:
			if len(a.Entries) == maxEntries {
				a.Entries, a.More = a.Entries[1:], a.More+1
			}
			a.Entries = append(a.Entries, *line.Entry)
		}
	}
	return a
}

func timelineOf(title string, tl wire.Timeline, now time.Time) timelineView {
	v := timelineView{Title: title, Notes: tl.Notes, Blocked: tl.Blocked}
	for _, r := range tl.Runs {
		v.Runs = append(v.Runs, viewOf(r, now))
	}
	return v
}

// WriteTimeline writes runs, with what happened beside them, as a file. of is the name that was asked for.
//
// log is what the audit log has about the run, or nil.
func WriteTimeline(w io.Writer, of string, tl wire.Timeline, log *Audit, now time.Time) error {
	title := "Runs of " + of
	if len(tl.Runs) == 1 {
		r := &tl.Runs[0]
		title = fmt.Sprintf("Run %s of %s in %s", r.ID, cmp.Or(r.Node, r.Machine), r.Cluster)
	}
	v := timelineOf(title, tl, now)
	v.File, v.Audit = true, log
	for i := range v.Runs {
		v.Runs[i].File = true
	}
	slices.Reverse(v.Runs) // the newest is what somebody wants to see
	return Write(w, File{Title: title, Made: now, Foot: "Written by fencectl timeline -o html. Times are those of fenced's host, in UTC."}, shared().Lookup("timeline"), v)
}
