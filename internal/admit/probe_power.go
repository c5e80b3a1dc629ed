package admit

import (
	"context"
	"slices"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/power"
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
