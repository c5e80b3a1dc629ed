package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

// summary says in plain sentences what a report says: how far the evidence reaches first.
func summary(r *wire.PeriodReport) []string {
	list := evidenceSentences(r)
	if s := modeSentence(r); s != "" {
		list = append(list, s)
	}
	list = append(list, wouldSentences(&r.Would)...)
	list = append(list, fencedSentence(&r.Fenced))
	if s := refusedSentence(r.Refused); s != "" {
		list = append(list, s)
	}
	if s := bmcSentence(&r.BMCs); s != "" {
		list = append(list, s)
	}
	return append(list, limitSentences(r.Limits)...)
}

// evidenceSentences say what part of the period is covered.
func evidenceSentences(r *wire.PeriodReport) []string {
	asked, covered := r.Until.Sub(r.Since), seconds(r.Evidence.CoveredSeconds)
	list := []string{"The evidence covers all of the last " + length(asked) + "."}
	if missing := asked - covered; missing > shortGap {
		list[0] = fmt.Sprintf("The evidence covers %s of a period of %s.", length(covered), length(asked))
		switch begin := r.Evidence.From; {
		case begin.IsZero():
			list[0] += " The audit log says nothing about the period."
		case begin.After(r.Since):
			list[0] += " The audit log begins at " + begin.UTC().Format(time.RFC3339) + "."
		}
	}
	broken := 0
	for _, g := range r.Evidence.Gaps {
		if g.Broken {
			broken++
		}
	}
	if broken > 0 {
		list = append(list, fmt.Sprintf("The audit log is broken in %s: see the gaps, and run fencectl audit verify.", count(broken, "place")))
	}
	if n := r.Evidence.RunsOfState; n > 0 {
		list = append(list, fmt.Sprintf("The log of this instance does not have %s that the state has: another instance did them, or a part of the log is gone.", count(n, "run")))
	}
	if n := r.Evidence.Dropped; n > 0 {
		list = append(list, fmt.Sprintf("There was too much at the same time to follow all of it: %s were left out.", count(n, "thing")))
	}
	return list
}

// modeSentence says how long which mode was in force, by cluster.
func modeSentence(r *wire.PeriodReport) string {
	total := map[string]map[string]float64{}
	for _, m := range r.Modes {
		if total[m.Cluster] == nil {
			total[m.Cluster] = map[string]float64{}
		}
		total[m.Cluster][m.Mode] += m.Seconds
	}
	var parts []string
	for _, cluster := range slices.Sorted(maps.Keys(total)) {
		var in []string
		for _, mode := range slices.Sorted(maps.Keys(total[cluster])) {
			in = append(in, fmt.Sprintf("%s for %s", strings.ReplaceAll(mode, ",", ", "), length(seconds(total[cluster][mode]))))
		}
		parts = append(parts, "cluster "+cluster+" was in mode "+join(in))
	}
	if len(parts) == 0 {
		return ""
	}
	if len(parts) > 5 {
		parts = append(parts[:5], fmt.Sprintf("%d more clusters have their modes below", len(parts)-5))
	}
	return upper(strings.Join(parts, "; ")) + "."
}

// wouldSentences say whether fencing would have been needed, where fenced only observed.
func wouldSentences(w *wire.WouldHaveFenced) []string {
	if w.Count == 0 {
		return nil
	}
	list := []string{fmt.Sprintf("fenced would have fenced %s on %s, had it been armed and had the other gates held.", count(w.Count, "time"), count(w.Targets, "Node or Machine"))}
	if n := w.ByOutcome[wire.OutcomeRecovered]; n > 0 {
		list = append(list, fmt.Sprintf("%d of these ended without fenced: no check asked for them any more, half of them within %s, the slowest after %s. They recovered, or somebody else helped, deleted them or changed the check.",
			n, length(seconds(w.Recovery.MedianSeconds)), length(seconds(w.Recovery.MaxSeconds))))
	}
	for _, o := range []struct{ outcome, text string }{
		{wire.OutcomeOpen, "have not recovered yet"}, {wire.OutcomeFenced, "were fenced in the end, by an order or after fenced was armed"}, {wire.OutcomeUnknown, "have an end that nobody saw: fenced was stopped, or the log has a gap"},
	} {
		if n := w.ByOutcome[o.outcome]; n > 0 {
			list = append(list, fmt.Sprintf("%d of these %s.", n, o.text))
		}
	}
	return list
}

func fencedSentence(f *wire.FencedInPeriod) string {
	if f.Count == 0 {
		return "No run began."
	}
	var parts []string
	for _, result := range slices.Sorted(maps.Keys(f.ByResult)) {
		parts = append(parts, fmt.Sprintf("%d %s", f.ByResult[result], result))
	}
	return fmt.Sprintf("%s began: %s.", upper(count(f.Count, "run")), join(parts))
}

func refusedSentence(list []wire.RefusedReason) string {
	times, now, most := 0, 0, ""
	for _, r := range list {
		times += r.Count
		now += r.Now
		if most == "" && r.Count > 0 {
			most = r.Reason
		}
	}
	if times+now == 0 {
		return ""
	}
	text := fmt.Sprintf("A remediation that a check wanted was refused %s", count(times, "time"))
	if most != "" {
		text += ", most often for " + most
	}
	if now > 0 {
		text += fmt.Sprintf("; refused now: %d", now)
	}
	return text + "."
}

func bmcSentence(b *wire.BMCsInPeriod) string {
	n := len(b.Outages) + b.OutagesMore
	if n == 0 && b.NotDependable == 0 && b.NeverChecked == 0 {
		return ""
	}
	text := "The log has no BMC that was not dependable"
	if n > 0 {
		text = fmt.Sprintf("BMCs that were not dependable for some time: %d, the longest %s (%s)", n, b.Outages[0].Device, length(seconds(b.Outages[0].TotalSeconds)))
	}
	return text + fmt.Sprintf(". Of the %d BMCs known now, %d are not dependable, and %d were not checked since the start of fenced.", b.Total, b.NotDependable, b.NeverChecked)
}

func limitSentences(list []wire.LimitsOfACheck) []string {
	closed, near, longest := 0, 0, 0.0
	for _, l := range list {
		closed, near, longest = closed+l.Closed, near+l.Near, max(longest, l.LongestSeconds)
	}
	if closed+near == 0 {
		return nil
	}
	text := fmt.Sprintf("Limits of checks were nearly reached %s and closed %s", count(near, "time"), count(closed, "time"))
	if closed > 0 {
		text += ", at most for " + length(seconds(longest))
	}
	return []string{text + "."}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// length writes a time as people say it, in its two largest units.
func length(d time.Duration) string {
	d = d.Round(time.Second)
	day := 24 * time.Hour
	for _, u := range []struct {
		size, next  time.Duration
		name, small string
	}{{day, time.Hour, "day", " h"}, {time.Hour, time.Minute, "h", " min"}, {time.Minute, time.Second, "min", " s"}} {
		if d < u.size {
			continue
		}
		whole, rest := d/u.size, d%u.size/u.next
		text := fmt.Sprintf("%d %s", whole, u.name)
		if u.size == day {
			text = count(int(whole), u.name)
		}
		if rest > 0 {
			text += fmt.Sprintf(" %d%s", rest, u.small)
		}
		return text
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// count writes a number with its noun.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	many := one + "s"
	if one == "Node or Machine" {
		many = "Nodes or Machines"
	}
	return fmt.Sprintf("%d %s", n, many)
}

func join(parts []string) string {
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

// upper begins a sentence.
func upper(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] }
