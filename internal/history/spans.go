package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
)

// spanKey names what has spans: a device of a host, or a check.
type spanKey struct{ cluster, node, name string }

// span is what is known of one of them.
type span struct {
	count          int
	near           int
	longest, total time.Duration
	text           string // reason or message of the newest
	since          time.Time
	doubt
}

// againWithin is how long after a start what is still so is told again. What was not told by then had ended, nobody saw when.
const againWithin = 15 * time.Minute

// doubt is whether what was so before a start is still so. It is zero without a start since, and after that start has told it again.
type doubt struct {
	known time.Time // it was so at this time
	until time.Time // by then the start tells it again
}

// doubtAt is the doubt after a start at a time. used is when the daemon before it was alive, and since when it was so.
func (d doubt) doubtAt(at, used, since time.Time) doubt {
	if d.known.IsZero() {
		d.known = times.Later(used, since)
	}
	d.until = at.Add(againWithin)
	return d
}

// ended returns whether it had ended by now, which is so if no start has told it again in time.
func (d doubt) ended(now time.Time) bool { return !d.known.IsZero() && now.After(d.until) }

// spans follows times that begin and end: outages of BMCs, closed limits.
type spans struct {
	period  Period
	of      map[spanKey]*span
	dropped int
}

func newSpans(p Period) spans { return spans{period: p, of: map[spanKey]*span{}} }

func (s *spans) get(k spanKey) *span {
	one := s.of[k]
	if one == nil {
		if len(s.of) >= maxKeys {
			s.dropped++
			return &span{} // follows nothing
		}
		one = &span{}
		s.of[k] = one
	}
	return one
}

// begin takes in that a span begins. One that is open goes on, unless a start has not told it in time.
func (s *spans) begin(k spanKey, e audit.Entry) {
	one := s.get(k)
	if !one.since.IsZero() && one.ended(e.At) {
		s.sum(one, one.known)
	}
	one.text, one.doubt = cmp.Or(e.Reason, e.Message), doubt{}
	if one.since.IsZero() {
		one.since = e.At
	}
}

// end takes in that a span has ended.
func (s *spans) end(k spanKey, at time.Time) {
	if one := s.of[k]; one != nil && !one.since.IsZero() {
		s.sum(one, at)
	}
}

// removed ends the spans of a cluster.
func (s *spans) removed(cluster string, at time.Time) {
	for k := range s.of {
		if k.cluster == cluster {
			s.end(k, at)
		}
	}
}

// mark counts a moment.
func (s *spans) mark(k spanKey, e audit.Entry) {
	if !s.period.has(e.At) {
		return
	}
	one := s.get(k)
	one.near++
	one.text = cmp.Or(one.text, e.Message)
}

// sum counts the open span. to is zero if it lasts.
func (s *spans) sum(one *span, to time.Time) {
	if s.period.touches(one.since, to) {
		took := s.period.overlap(one.since, to)
		one.count++
		one.total += took
		one.longest = max(one.longest, took)
	}
	if !to.IsZero() {
		one.since, one.doubt = time.Time{}, doubt{}
	}
}

// restart puts in doubt what is open at a start.
func (s *spans) restart(used, at time.Time) {
	for _, one := range s.of {
		if !one.since.IsZero() {
			one.doubt = one.doubtAt(at, used, one.since)
		}
	}
}

// close ends what a start has not told again, and counts what lasts.
func (s *spans) close() {
	for _, one := range s.of {
		switch {
		case one.since.IsZero():
		case one.ended(s.period.Until):
			s.sum(one, one.known)
		default:
			s.sum(one, time.Time{})
		}
	}
}

// evidence follows how much of the period the log covers.
type evidence struct {
	period  Period
	entries int
	first   time.Time // of all entries
	last    time.Time
	gaps    newest[wire.EvidenceGap]    // in which entries are missing, or no fenced ran
	unseen  map[string]wire.EvidenceGap // open ones, by cluster
	views   newest[wire.EvidenceGap]    // in which a cluster was not seen
}

// shortGap is the longest time without a fenced that is not worth a line: a restart.
const shortGap = 10 * time.Second

func (v *evidence) add(e audit.Entry) {
	if v.first.IsZero() {
		v.first = e.At
		if e.At.After(v.period.Since) {
			v.gap(v.period.Since, e.At, "the log begins then")
		}
	}
	switch used, known := v.lastUse(e); {
	case e.Type == audit.Lost:
		v.gap(cmp.Or(v.last, e.At), e.At, e.Message)
	case !e.Starts():
	case known && e.At.Sub(used) > shortGap:
		v.gap(used, e.At, "no fenced ran")
	case !known && !v.last.IsZero():
		v.gap(v.last, e.At, "fenced started then, and it is not known how long none had run")
	}
	if e.Starts() { // the view begins anew
		v.endViews(e.At)
	}
	v.last = e.At
	if v.period.has(e.At) {
		v.entries++
	}
}

// lastUse is when the daemon before a start was alive for the last time that is known: it saved the head of the log then, or wrote an
// entry.
func (v *evidence) lastUse(start audit.Entry) (time.Time, bool) {
	used, known := start.LastUse()
	if v.last.After(used) && known {
		used = v.last
	}
	return used, known
}

// broken takes in that entries are missing or were changed.
func (v *evidence) broken(b audit.Break) {
	if b.After == 0 { // the first entry says when it begins
		return
	}
	v.addGap(wire.EvidenceGap{From: b.From, To: cmp.Or(b.To, v.period.Until), What: "the log is broken: " + b.What, Broken: true})
}

func (v *evidence) gap(from, to time.Time, what string) {
	v.addGap(wire.EvidenceGap{From: from, To: to, What: what})
}

func (v *evidence) addGap(g wire.EvidenceGap) {
	if v.period.touches(g.From, g.To) {
		v.gaps.add(g, maxKeys)
	}
}

// view takes in that the view of a cluster became bad, or good.
func (v *evidence) view(e audit.Entry) {
	if e.Message == "" {
		v.endView(e.Cluster, e.At)
		return
	}
	if v.unseen == nil {
		v.unseen = map[string]wire.EvidenceGap{}
	}
	if _, is := v.unseen[e.Cluster]; !is && len(v.unseen) < maxKeys {
		v.unseen[e.Cluster] = wire.EvidenceGap{Cluster: e.Cluster, From: e.At, What: "fenced did not see the cluster: " + e.Message}
	}
}

func (v *evidence) endViews(at time.Time) {
	for cluster := range v.unseen {
		v.endView(cluster, at)
	}
}

func (v *evidence) endView(cluster string, at time.Time) {
	g, is := v.unseen[cluster]
	delete(v.unseen, cluster)
	if g.To = at; is && v.period.touches(g.From, at) && at.Sub(g.From) > shortGap {
		v.views.add(g, maxKeys)
	}
}

// report sums up the gaps. Gaps of the log are not covered; the others are listed only.
func (v *evidence) report() wire.Evidence {
	for cluster, g := range v.unseen {
		if v.period.Until.Sub(g.From) > shortGap {
			v.views.add(g, maxKeys)
		}
		delete(v.unseen, cluster)
	}
	out := wire.Evidence{Entries: v.entries}
	length := v.period.Until.Sub(v.period.Since)
	if v.first.IsZero() {
		v.gap(v.period.Since, v.period.Until, "the log has no entry")
	} else if out.From = v.first; v.first.Before(v.period.Since) {
		out.From = v.period.Since
	}
	byBegin := func(a, b wire.EvidenceGap) int { return a.From.Compare(b.From) }
	slices.SortFunc(v.gaps.list, byBegin)
	end := v.period.Since
	for _, g := range v.gaps.list {
		if from := times.Later(g.From, end); g.To.After(from) {
			length -= v.period.overlap(from, g.To)
			end = g.To
		}
	}
	out.CoveredSeconds = max(0, length).Seconds()
	all := newest[wire.EvidenceGap]{slices.Concat(v.gaps.list, v.views.list), v.gaps.more + v.views.more}
	out.Gaps, out.GapsMore = all.shown(byBegin)
	return out
}

// modes follows the mode of each cluster.
type modes struct {
	period Period
	open   map[string]openMode
	list   newest[wire.ModeSpan]
}

// openMode is the mode that a cluster has. A start does not tell that of one that is not configured any more.
type openMode struct {
	wire.ModeSpan
	doubt
}

func (m *modes) add(e audit.Entry) {
	mode, found := strings.CutPrefix(e.Inputs, event.ModeIn)
	was, is := m.open[e.Cluster]
	if !found || !is && len(m.open) >= maxKeys {
		return
	}
	now := openMode{ModeSpan: wire.ModeSpan{Cluster: e.Cluster, Mode: mode, From: e.At}}
	switch {
	case is && was.ended(e.At):
		m.end(was.ModeSpan, was.known)
	case is && was.Mode == mode:
		now.From = was.From
	case is:
		m.end(was.ModeSpan, e.At)
	}
	if e.Inputs == event.NoMode {
		delete(m.open, e.Cluster)
		return
	}
	m.open[e.Cluster] = now
}

// restart puts the modes before a start in doubt.
func (m *modes) restart(used, at time.Time) {
	for cluster, s := range m.open {
		s.doubt = s.doubtAt(at, used, s.From)
		m.open[cluster] = s
	}
}

func (m *modes) end(s wire.ModeSpan, to time.Time) {
	if !m.period.touches(s.From, to) {
		return
	}
	s.To, s.Seconds = to, m.period.overlap(s.From, to).Seconds()
	m.list.add(s, maxKeys)
}

func (m *modes) report() []wire.ModeSpan {
	for cluster, s := range m.open {
		to := time.Time{}
		if s.ended(m.period.Until) {
			to = s.known
		}
		m.end(s.ModeSpan, to)
		delete(m.open, cluster)
	}
	shown, _ := m.list.shown(func(a, b wire.ModeSpan) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), a.From.Compare(b.From))
	})
	return shown
}
