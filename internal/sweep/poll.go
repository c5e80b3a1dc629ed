package sweep

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
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
	// longTimeout limits a description, and an audit. Each makes many requests, and
	// the driver limits every one.
	longTimeout = 45 * time.Second
	// orderTimeout limits a poll that a person waits for: two outlets of a dead PDU,
	// or one slow BMC that is read, described and audited.
	orderTimeout = 2 * time.Minute
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
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), power.CloseTimeout)
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

// Test polls every device of a Node's host now and returns the results. It does
// not wait for the schedule. It also tries an account that was refused, because
// the caller may just have corrected it. An error is a *reason.Refusal or that of
// ctx.
func (s *Sweep) Test(ctx context.Context, cluster, node string) ([]Result, error) {
	return s.order(ctx, cluster, node, scope{describe: true})
}

// Audit is Test that also looks for weaknesses.
func (s *Sweep) Audit(ctx context.Context, cluster, node string) ([]Result, error) {
	return s.order(ctx, cluster, node, scope{describe: true, audit: true})
}

func (s *Sweep) order(ctx context.Context, cluster, node string, what scope) ([]Result, error) {
	subject, err := s.opt.Engine.SubjectOf(ctx, cluster, node)
	if err == nil {
		err = subject.Err
	}
	if err == nil && subject.Withheld != nil {
		err = subject.Withheld
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	round, known := 0, s.hosts[idOf(&subject)]
	if known != nil {
		round = known.round
	}
	h := s.updateHost(subject, time.Now(), round)
	if known == nil {
		s.listed = append(s.listed, h)
	}
	list := h.list
	s.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	answers := make([]answer, len(list))
	var polls sync.WaitGroup
	for _, group := range byService(list) {
		polls.Go(func() {
			s.blockService(list[group[0]])
			defer s.unblockService(list[group[0]])
			for _, i := range group {
				answers[i] = s.query(bounded, s.opt.Urgent, subject, list[i].id, what)
				s.recordOrdered(ctx, list[i], answers[i])
			}
		})
	}
	polls.Wait()
	s.wakeLoop()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.orderResults(ctx, list, answers), nil
}

// blockService keeps scheduled polls away from e's service until unblockService.
func (s *Sweep) blockService(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan.block(e)
}

func (s *Sweep) unblockService(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan.unblock(e, time.Now())
}

// byService groups devices by service. Only one at a time can be polled there.
func byService(list []*entry) map[string][]int {
	groups := map[string][]int{}
	for i, e := range list {
		groups[e.service] = append(groups[e.service], i)
	}
	return groups
}

// recordOrdered records the result of an ordered poll. A device that works again
// is then polled at the normal interval.
func (s *Sweep) recordOrdered(ctx context.Context, e *entry, a answer) {
	if a.abandoned {
		return
	}
	s.mu.Lock()
	news := s.record(e, a)
	if s.opt.Every > 0 {
		s.plan.bringForward(e, s.due(e, time.Now()))
	}
	s.mu.Unlock()
	s.publish(ctx, a, news)
}

// orderResults returns the current results. A device that could not be polled now
// has the error in its result: an old answer must not pass for the ordered one.
func (s *Sweep) orderResults(ctx context.Context, list []*entry, answers []answer) []Result {
	out := s.resultsOf(ctx, list)
	for i, a := range answers {
		if a.abandoned {
			out[i].Reason, out[i].Problem = reasonOf(a.Err), reason.Sentence(a.Err)
		}
		if a.describeErr != nil {
			out[i].DescribeProblem = a.describeErr.Error()
		}
		if a.auditErr != nil {
			out[i].AuditProblem = a.auditErr.Error()
		}
	}
	return out
}
