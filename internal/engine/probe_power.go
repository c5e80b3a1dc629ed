package engine

import (
	"context"
	"slices"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/power"
)

// levelState is what the probes of a target found about one power level.
type levelState struct {
	failed int   // in a row
	err    error // the last failure
}

// probePower finds the host and its first power level that answers, and compares
// identities there: an answer of another machine is refused, and no further level
// is tried.
func (c *cluster) probePower(ctx context.Context, p *probe) error {
	h, err := c.hosts.FindNew(ctx, p.draft.Target)
	if err != nil {
		return err
	}
	t := &p.draft.Target
	c.hosts.FixTarget(t, h)
	p.draft.Limits.Levels = len(h.Levels)
	if p.levels == nil && p.draft.Manual != nil { // whoever orders it may have mended the account
		c.e.lockOut.Forget(h)
	}
	if len(p.levels) != len(h.Levels) {
		p.levels = make([]levelState, len(h.Levels))
	}
	p.identity = guard.IdentityFact{Mode: h.IdentityMode, Node: t.SystemUUID}
	for i := range h.Levels {
		l := &p.levels[i]
		if err := c.e.lockOut.BackingOff(h.Levels[i]); err != nil {
			l.err = err
			continue
		}
		r, s, err := c.readLevel(ctx, h, i)
		if ctx.Err() == nil { // else it was cut short
			c.e.lockOut.Probed(h.Levels[i], err)
		}
		if err == nil {
			*l = levelState{}
			p.draft.Level, p.session = i, s
			p.identity.BMC = r.Identity.UUID
			p.identity.Verdict = c.hosts.Identify(ctx, h, i, r, *t, p.draft.Manual != nil)
			return nil
		}
		l.failed, l.err = l.failed+1, err
		if !bmc.KindOf(err).RefusesAccount() && l.failed < power.FailedTwice {
			return err
		}
	}
	return p.levels[0].err
}

// readLevel opens one level and reads it; the session is the caller's when there
// is no error.
func (c *cluster) readLevel(ctx context.Context, h bmc.Host, level int) (bmc.Reading, *power.Session, error) {
	s, err := c.openLevel(h, level)
	if err != nil {
		return bmc.Reading{}, nil, err
	}
	r, err := s.Read(ctx)
	if err != nil {
		s.Close(ctx)
		return bmc.Reading{}, nil, err
	}
	return r, s, nil
}

// openLevel opens one level.
func (c *cluster) openLevel(h bmc.Host, level int) (*power.Session, error) {
	p, err := power.OpenLevel(c.e.opt.Open, h, level)
	if err != nil {
		return nil, err
	}
	return power.NewSession(h, level, p, c.e.opt.Power), nil
}

// untried says whether another probe could pass over a level that failed for the
// first time and reach a further one.
func (p *probe) untried() bool {
	if p.hostError == "" || len(p.levels) < 2 {
		return false
	}
	return slices.ContainsFunc(p.levels, func(l levelState) bool { return l.failed == 0 })
}
