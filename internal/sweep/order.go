package sweep

import (
	"context"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// orderTimeout limits a poll that a person waits for: two outlets of a dead PDU,
// or one slow BMC that is read, described and audited.
const orderTimeout = 2 * time.Minute

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
	list := s.updateHost(subject, time.Now())
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
