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

// deviceID is a device's place among those of its host.
type deviceID struct{ level, device int }

// wish is what a look asks beyond the power state.
type wish struct{ describe, audit bool }

// answer is what one look found.
type answer struct {
	hosts.Checked
	// described and audited say that it was asked for and answered, or refused
	// with describeErr and auditErr.
	described, audited    bool
	describeErr, auditErr error
	findings              []bmc.Finding
	// abandoned: the look made way for a run, or nobody waits for it any more. It
	// says nothing about the device.
	abandoned bool
}

const (
	// closeTimeout bounds the end of a session.
	closeTimeout = 2 * time.Second
	// longLook bounds a description, and an audit: each is many questions, of which
	// the driver bounds every one.
	longLook = 45 * time.Second
)

func answerOf(subject hosts.Subject, id deviceID) answer {
	return answer{Checked: hosts.Checked{Subject: subject, Level: id.level, Device: id.device, At: time.Now()}}
}

func (a *answer) device() bmc.Device { return a.Subject.Host.Levels[a.Level].Devices[a.Device] }

// ask looks at one device: it reads, and ends its session. Each thing that is
// asked has its time for itself, and nothing more is asked of a device that does
// not tell its power state.
func (s *Sweep) ask(ctx context.Context, open bmc.Opener, subject hosts.Subject, id deviceID, what wish) answer {
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
		_ = p.Close(end) // a session left behind is the BMC's to time out
	}()
	began, limit := time.Now(), power.Timing(d, s.opt.ReadTimeout).ReadTimeout
	a.Err = bounded(ctx, limit, func(ctx context.Context) (err error) {
		a.Reading, err = p.Read(ctx)
		return err
	})
	a.At = time.Now()
	a.Latency = cmp.Or(a.Reading.Took, a.At.Sub(began)) // without the wait for others
	if a.Err != nil {
		a.abandoned = gaveWay(ctx, a.Err) || starved(a.At.Sub(began), a.Reading.Took, limit)
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

// describe asks what answers there. A device that does not say is no worse for it.
func (a *answer) describe(ctx context.Context, p bmc.Power) {
	if d, ok := p.(bmc.Describer); ok {
		a.describeErr = bounded(ctx, longLook, func(ctx context.Context) (err error) {
			a.Description, err = d.Describe(ctx)
			return err
		})
	}
	a.describeErr = unlessUnsupported(a.describeErr)
	a.described = !gaveWay(ctx, a.describeErr)
}

// audit looks for weaknesses. One that could not be finished must not read like
// one that found nothing.
func (a *answer) audit(ctx context.Context, p bmc.Power) {
	if d, ok := p.(bmc.Auditor); ok {
		a.auditErr = bounded(ctx, longLook, func(ctx context.Context) (err error) {
			a.findings, err = d.Audit(ctx)
			return err
		})
	}
	a.auditErr = unlessUnsupported(a.auditErr)
	a.audited = !gaveWay(ctx, a.auditErr)
}

// unlessUnsupported drops the error of a device that has nothing to answer with.
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

// gaveWay says whether a look was ended for reasons that are not the device's.
func gaveWay(ctx context.Context, err error) bool {
	return err != nil && (errors.Is(err, power.ErrInUse) || ctx.Err() != nil)
}

// starved says whether a look that failed waited for others so long that the
// device had no fair time to answer in. took is zero when that is not known.
func starved(whole, took, limit time.Duration) bool {
	return took > 0 && took < limit-limit/10 && whole >= limit
}
