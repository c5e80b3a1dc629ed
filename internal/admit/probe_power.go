package admit

import (
	"context"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// levelState holds the results of a target's probes at one power level.
type levelState struct {
	failed int   // failures in a row
	err    error // the last failure
}

// probePower finds the host and its first power level that answers, and compares identities
// there. If another machine answers, the run is refused, and no other level is tried.
func (ps *probes) probePower(ctx context.Context, p *probe) error {
	h, err := ps.opt.Hosts.FindNew(ctx, p.draft.Target)
	if err != nil {
		return err
	}
	t := &p.draft.Target
	ps.opt.Hosts.FixTarget(t, h)
	p.draft.Limits.Levels = len(h.Levels)
	if p.levels == nil && p.draft.Manual != nil && !p.onlyLooks { // the person may have corrected the password
		ps.opt.LockOut.Forget(h)
	}
	if len(p.levels) != len(h.Levels) {
		p.levels = make([]levelState, len(h.Levels))
	}
	p.identity = guard.IdentityFact{Mode: h.IdentityMode, Node: t.SystemUUID}
	for i := range h.Levels {
		l := &p.levels[i]
		if err := ps.opt.LockOut.BackingOff(h.Levels[i]); err != nil {
			l.err = err
			continue
		}
		r, s, err := power.OpenAndRead(ctx, ps.opt.Open, h, i, ps.opt.Timing)
		if ctx.Err() == nil { // otherwise the attempt was cancelled and says nothing
			ps.opt.LockOut.Probed(h.Levels[i], err)
		}
		if err == nil {
			*l = levelState{}
			p.draft.Level, p.session = i, s
			p.identity.BMC = r.Identity.UUID
			found := ps.opt.Hosts.IdentifyNew(ctx, h, i, r, *t, p.draft.Manual != nil)
			p.identity.Verdict, p.identity.Why = found.Verdict, found.Why
			t.ByHardware, t.ReportedUUID = found.ByHardware, found.ReportedUUID
			return nil
		}
		l.failed, l.err = l.failed+1, err
		if !bmc.KindOf(err).RefusesAccount() && l.failed < power.FailedTwice {
			return err
		}
	}
	return p.levels[0].err
}

// hasUntriedLevel says whether another probe could go past a level that has failed only once
// and reach a level that was not tried.
func (p *probe) hasUntriedLevel() bool {
	if p.hostError == "" || len(p.levels) < 2 {
		return false
	}
	return slices.ContainsFunc(p.levels, func(l levelState) bool { return l.failed == 0 })
}

// addLastChecks adds to a target that was not probed what fenced knows of the BMC of its host: the
// accounts that were refused, and the results of the BMC health check. A run reads the BMC itself;
// this is for people only, so that explain and bmc list say the same.
func (ps *probes) addLastChecks(p *probe, h bmc.Host) {
	var last []hosts.LastCheck
	if ps.opt.LastChecks != nil {
		last = ps.opt.LastChecks(ps.opt.Name, h.Name)
	}
	for i, level := range h.Levels {
		code, why := ps.levelProblem(level, i, last)
		if code == "" { // the level that a probe would use
			p.hostError, p.hostDetail = "", ""
			p.addIdentity(level, i, last)
			return
		}
		if p.hostError == "" {
			p.hostError, p.hostDetail = code, why
		}
	}
}

// levelProblem returns why a probe would go past a level of a host; "" if it would use it, or if
// nobody knows.
func (ps *probes) levelProblem(level bmc.Level, i int, last []hosts.LastCheck) (reason.Code, string) {
	if err := ps.opt.LockOut.BackingOff(level); err != nil {
		return hosts.ReasonOf(err), reason.Sentence(err)
	}
	for _, c := range last {
		if c.Level == i && c.Reason != "" {
			return c.Reason, c.Problem + " (BMC health check at " + c.At.UTC().Format(time.RFC3339) + ")"
		}
	}
	return "", ""
}

// addIdentity adds what the devices of a level reported last. Of a Machine without a Node, the
// health check has nothing to compare with.
func (p *probe) addIdentity(level bmc.Level, i int, last []hosts.LastCheck) {
	last = slices.DeleteFunc(last, func(c hosts.LastCheck) bool { return c.Level != i || c.At.IsZero() })
	if len(last) < len(level.Devices) {
		return // not checked yet
	}
	p.hostUnread = false
	p.hostDetail = "read " + last[0].Power.String() + " by the BMC health check at " + last[0].At.UTC().Format(time.RFC3339)
	if p.draft.Target.Node == "" {
		return
	}
	for _, c := range last {
		if p.identity.Verdict == "" || p.identity.Verdict == guard.IdentityMatches {
			p.identity.Verdict, p.identity.BMC = c.Identity, c.UUID
		}
	}
}

// readsOnSince says whether the BMC health check has read every device of a host On since then: nobody knows which
// of them was switched off. // I20
func (ps *probes) readsOnSince(ctx context.Context, t remediate.Target, since time.Time) bool {
	if ps.opt.LastChecks == nil {
		return false
	}
	h, err := ps.opt.Hosts.FindBare(ctx, t)
	if err != nil {
		return false
	}
	devices, on := 0, 0
	for _, l := range h.Levels {
		devices += len(l.Devices)
	}
	for _, last := range ps.opt.LastChecks(ps.opt.Name, h.Name) {
		if last.At.After(since) && last.Reason == "" && last.Power == bmc.On && last.Identity != guard.IdentityDiffers {
			on++
		}
	}
	return devices > 0 && on == devices
}
