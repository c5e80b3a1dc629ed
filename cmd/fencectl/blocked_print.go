package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/reason"
)

// bmcLine says how many BMCs a fence could not rely on, "" while none is known.
func bmcLine(n api.BMCCount) string {
	if n.Total == 0 {
		return ""
	}
	text := fmt.Sprintf("BMCs: %d, %d not dependable", n.Total, n.NotDependable)
	if n.NotChecked > 0 {
		text += fmt.Sprintf(", %d not checked yet", n.NotChecked)
	}
	return text
}

// blockedTarget is what forbids the remediation that a check wants; nil if nothing does.
func blockedTarget(st api.Status, cluster string, d api.TargetStatus) *api.Blocked {
	i := slices.IndexFunc(st.Blocked, func(b api.Blocked) bool {
		return b.Run == "" && b.Cluster == cluster && b.Check == d.Check && b.Node == d.Node && b.Machine == d.Machine
	})
	if i < 0 {
		return nil
	}
	return &st.Blocked[i]
}

// blockedBy is the cell of a target that is not remediated.
func blockedBy(st api.Status, cluster string, d api.TargetStatus, now time.Time) cell {
	b := blockedTarget(st, cluster, d)
	if b == nil {
		return cell{text: "-"}
	}
	return cell{text: blockedText(*b, now), color: red}
}

// blockedText is the reason, since when, and what comes next.
func blockedText(b api.Blocked, now time.Time) string {
	text := b.Reason + " for " + age(b.Since, now)
	switch {
	case b.NextTry.After(now):
		return text + ", next try in " + span(b.NextTry.Sub(now))
	case !b.NextTry.IsZero():
		return text + ", next try now"
	case b.Class == string(reason.Person):
		return text + ", needs a person"
	}
	return text + ", until that changes"
}

// lastError is the cell of a run's last error.
func (c *cli) lastError(e *api.RunError, now time.Time) cell {
	switch {
	case e == nil:
		return cell{text: "-"}
	case c.output == "wide" || e.Reason == "":
		return cell{text: age(e.At, now) + " ago: " + e.Text(), color: yellow}
	}
	return cell{text: e.Reason + ", " + age(e.At, now) + " ago", color: yellow}
}

// printNotes prints what forbids the remediation now, and what happened beside the steps.
func (c *cli) printNotes(tl api.Timeline, now time.Time) error {
	p := c.painter(c.out)
	for _, b := range tl.Blocked {
		who := "the remediation by " + b.Check
		if b.Run != "" {
			who = "run " + b.Run
		}
		fmt.Fprintf(c.out, "\n%s %s: %s: %s\n", p.paint(red, "blocked:"), escapeControl(who), escapeControl(blockedText(b, now)), escapeControl(b.Message))
	}
	t := newTable("TIME", "WHAT", "RUN", "REASON", "MESSAGE")
	for _, n := range tl.Notes {
		message := n.Message
		if n.Count > 1 {
			message += fmt.Sprintf(" (%d times, last %s)", n.Count, clock(n.Last))
		}
		t.add(clock(n.At), n.Type, orDash(n.Run), orDash(n.Reason), message)
	}
	return t.write(c.out, p, "NOTES")
}
