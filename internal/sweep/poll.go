package sweep

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
)

// deviceID is the position of a device in the inventory entry of its host.
type deviceID struct{ level, device int }

// scope is what a poll queries beyond the power state.
type scope struct{ describe, audit bool }

// answer is the result of one poll.
type answer struct {
	hosts.Checked
	// described and audited mean that the query was made and completed, or failed
	// with describeErr or auditErr.
	described, audited    bool
	describeErr, auditErr error
	findings              []bmc.Finding
	// abandoned: the poll was cancelled for a run, or its caller stopped waiting.
	// It says nothing about the device.
	abandoned bool
}

const (
	// closeTimeout limits the end of a session.
	closeTimeout = 2 * time.Second
	// longTimeout limits a description, and an audit. Each makes many requests, and
	// the driver limits every one.
	longTimeout = 45 * time.Second
)

func answerOf(subject hosts.Subject, id deviceID) answer {
	return answer{Checked: hosts.Checked{Subject: subject, Level: id.level, Device: id.device, At: time.Now()}}
}

func (a *answer) device() bmc.Device { return a.Subject.Host.Levels[a.Level].Devices[a.Device] }

// query polls one device: it reads, and ends its session. Each part has a timeout
// of its own. If the power state cannot be read, it queries nothing more.
func (s *Sweep) query(ctx context.Context, open bmc.Opener, subject hosts.Subject, id deviceID, what scope) answer {
	a := answerOf(subject, id)
	d := a.device()
	if d.Unusable != nil {
		a.Err = d.Unusable
		return a
	}
	p, err := open(d)
	if err != nil {
		a.Err = err
		return a
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = p.Close(end) // the BMC will time out a session left open
	}()
	began, limit := time.Now(), power.Timing(d, s.opt.ReadTimeout).ReadTimeout
	a.Err = bounded(ctx, limit, func(ctx context.Context) (err error) {
		a.Reading, err = p.Read(ctx)
		return err
	})
	a.At = time.Now()
	a.Latency = cmp.Or(a.Reading.Took, a.At.Sub(began)) // without the wait for other users of the device
	if a.Err != nil {
		a.abandoned = wasPreempted(ctx, a.Err) || isStarved(a.At.Sub(began), a.Reading.Took, limit)
		return a
	}
	a.Identity = s.opt.Engine.Identify(ctx, subject, id.level, id.device, a.Reading)
	if what.describe {
		a.describe(ctx, p)
	}
	if what.audit {
		a.audit(ctx, p)
	}
	return a
}

// describe queries what answers there. A device that cannot tell is not worse for
// it.
func (a *answer) describe(ctx context.Context, p bmc.Power) {
	if d, ok := p.(bmc.Describer); ok {
		a.describeErr = bounded(ctx, longTimeout, func(ctx context.Context) (err error) {
			a.Description, err = d.Describe(ctx)
			return err
		})
	}
	a.describeErr = unlessUnsupported(a.describeErr)
	a.described = !wasPreempted(ctx, a.describeErr)
}

// audit looks for weaknesses. An incomplete audit must not look like one that
// found nothing.
func (a *answer) audit(ctx context.Context, p bmc.Power) {
	if d, ok := p.(bmc.Auditor); ok {
		a.auditErr = bounded(ctx, longTimeout, func(ctx context.Context) (err error) {
			a.findings, err = d.Audit(ctx)
			return err
		})
	}
	a.auditErr = unlessUnsupported(a.auditErr)
	a.audited = !wasPreempted(ctx, a.auditErr)
}

// unlessUnsupported drops the error of a device that does not support a query.
func unlessUnsupported(err error) error {
	if bmc.KindOf(err) == bmc.KindUnsupported {
		return nil
	}
	return err
}

func bounded(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}

// wasPreempted reports whether a poll was ended for reasons other than the
// device.
func wasPreempted(ctx context.Context, err error) bool {
	return err != nil && (errors.Is(err, power.ErrInUse) || ctx.Err() != nil)
}

// isStarved reports whether a failed poll waited so long for other users that the
// device had no fair time to answer. took is zero if it is not known.
func isStarved(whole, took, limit time.Duration) bool {
	return took > 0 && took < limit-limit/10 && whole >= limit
}
