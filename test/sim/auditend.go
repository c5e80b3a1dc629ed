package sim

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// resumeWithin is how soon after its start a fenced reads the state of every open
// run. // L2
const resumeWithin = 10 * time.Second

// audit runs the checks of every second. w.mu is held.
func (w *World) audit(now time.Time) {
	w.outcome.Rounds++
	for _, i := range w.instances {
		c := i.cur
		if c == nil || c.dead || c.engine == nil {
			continue
		}
		since := c.since
		if w.plan.Instances > 1 {
			if since = w.owners.since; w.owners.holder != c {
				continue
			}
		}
		w.auditDelay(c, since, now)
		w.auditCases(c, now)
		if age := now.Sub(since); i.storeCut.After(since) || age < resumeWithin || age > resumeWithin+2*time.Second {
			continue
		}
		for _, r := range w.ledger.runs {
			if r.Open() && c.active[r.Target.Node].Before(since) && r.Started.Before(since) {
				w.violate("L2", r.Target.Node, "%s has not looked at run %s %s after it took it over", c, r.ID, now.Sub(since))
			}
		}
	}
}

// finish checks the end of the story, long after the last fault.
func (w *World) finish() {
	why := w.explained()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		w.finishHost(h, why[h.Name])
	}
	for _, r := range w.ledger.runs {
		if longest := w.plan.run().RunTimeout + w.plan.run().OnDeadline + 5*time.Minute; r.Open() && !r.Step.Idle() && time.Since(r.Started) > longest {
			w.violate("L1", r.Target.Node, "run %s is in step %s since %s", r.ID, r.Step, time.Since(r.Started))
		}
		w.finishWaiting(r)
		w.finishOld(r)
	}
	w.finishRequests()
	w.finishOthers()
}

// finishWaiting requires that a Waiting run has gone on by itself, now that nothing is wrong any more:
// to bring the host back, or so far that only the gates keep it from step 1. w.mu is held.
func (w *World) finishWaiting(r remediate.Run) {
	if r.Step != remediate.Waiting || r.LeaveOff || r.Reason == reason.AttemptsExhausted || w.hostOf(r.Target.Node).Gone {
		return
	}
	if h := w.hostOf(r.Target.Node); h.ControlPlane && !w.survives(w.api.Look(r, nil), h.Name) {
		return // what waits is what another member's host needs, too: somebody must repair one of them // I12
	}
	longest := 30*w.plan.run().RetryInterval*6/5 + 5*time.Minute
	if since := time.Since(r.Wait.Since); since > longest && !r.Wait.Due { // L5
		w.violate("L5", r.Target.Node, "run %s waits for %s since %s, which nothing causes any more", r.ID, r.Reason, since)
	}
}

// finishHost requires that a host is On, its Node Ready and every label restored,
// or an open record, or a reason why nobody acts. w.mu is held.
func (w *World) finishHost(h *host, why string) {
	r, open := w.open(h.Name)
	n := w.api.Nodes[h.Name]
	switch {
	case h.Gone:
	case open && !h.On:
		w.outcome.Stranded++
		w.note(h.Name, "at the end Off, and run %s is %s: %s", r.ID, r.Step, r.Reason)
	case open:
	case !h.On && len(w.ledger.cycles[h.Name]) > 0 && h.OffBy != "foreign hand":
		w.violate("I20", h.Name, "the host is off by %s, and no run is open", h.OffBy)
	case n != nil && n.Ready == "True":
		if lacks := n.Lacks(h.Host); len(lacks) > 0 && !w.ledger.forged[h.Name] {
			w.violate("I20", h.Name, "the Node lacks %s, and no run is open", strings.Join(lacks, ", "))
		}
	case n != nil && time.Since(n.Since) < 5*time.Minute: // it has just been deleted
	case n == nil && (w.plan.Escalates || w.plan.Limit > 0): // its remediator has deleted it, and a NodeHealthCheck covers nothing else
	case w.asked(h.Name):
		w.note(h.Name, "at the end another remediator is asked")
	case why == "" || strings.HasPrefix(why, string(reason.NotUnhealthy)) || strings.HasPrefix(why, string(reason.NotCovered)):
		w.violate("L4", h.Name, "the Node is not Ready (host on: %t), nobody acts, and no gate says why (%s)", h.On, why)
	default:
		w.note(h.Name, "left alone: %s", why)
	}
}

// explained returns, for each Node, the first gate that does not pass.
func (w *World) explained() map[string]string {
	var c *incarnation
	w.do(func() { c = w.orderTarget() })
	why := map[string]string{}
	if c == nil {
		return why
	}
	for _, h := range w.hosts {
		ctx, cancel := context.WithTimeout(c.ctx, orderTime)
		x, err := c.engine.Explain(ctx, cluster, h.Name)
		cancel()
		if err != nil {
			why[h.Name] = err.Error()
			continue
		}
		w.do(func() { w.search("an explanation", h.Name, fmt.Sprintf("%+v", x)) })
		for _, g := range x.Gates {
			if !g.Pass {
				why[h.Name] = fmt.Sprintf("%s: %s (needs %s)", g.Reason, g.Value, g.Threshold)
				break
			}
		}
	}
	return why
}

// marker is part of every password of a world, and of nothing else in it.
func (p Plan) marker() string { return fmt.Sprintf("Hush%016xHush", (p.Seed+1)*0x9e3779b97f4a7c15) }

// password is that of a host, or the same for all, as in many fleets.
func (h *host) password() bmc.Secret {
	if h.w.plan.OnePassword {
		return h.w.password("all")
	}
	return h.w.password(h.Name)
}

func (w *World) password(of string) bmc.Secret { return bmc.NewSecret(w.plan.marker() + of) }

// markers returns the forms of a text that may appear: unchanged, and in base64
// at any offset.
func markers(text string) []string {
	forms := []string{text}
	for before := range 3 {
		coded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + text))
		forms = append(forms, coded[(before*4+2)/3:len(coded)-4]) // without the characters that neighbours affect
	}
	return forms
}

// search looks for passwords in what fenced has written or printed. w.mu is
// held. // I25
func (w *World) search(where, node string, texts ...string) {
	for _, text := range texts {
		w.outcome.Cases["I25 texts searched"]++
		for _, m := range w.markers {
			if strings.Contains(text, m) {
				w.violate("I25", node, "%s tells a password", where)
			}
		}
	}
}
