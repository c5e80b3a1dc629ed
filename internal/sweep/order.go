package sweep

import (
	"context"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// orderTimeout bounds a look that a person waits for: two outlets of a dead PDU, or
// one slow BMC that is read, described and audited.
const orderTimeout = 2 * time.Minute

// Test looks at every device of a Node's host now, and gives what is then known.
// It waits for nothing but the device itself, and asks an account that was
// refused, too: whoever orders it has just mended it. An error is a *reason.Refusal
// or that of ctx.
func (s *Sweep) Test(ctx context.Context, cluster, node string) ([]Result, error) {
	return s.order(ctx, cluster, node, wish{describe: true})
}

// Audit is Test that also looks for weaknesses.
func (s *Sweep) Audit(ctx context.Context, cluster, node string) ([]Result, error) {
	return s.order(ctx, cluster, node, wish{describe: true, audit: true})
}

func (s *Sweep) order(ctx context.Context, cluster, node string, what wish) ([]Result, error) {
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
	list := s.adoptOne(subject, time.Now())
	s.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	answers := make([]answer, len(list))
	var looks sync.WaitGroup
	for _, turn := range byService(list) {
		looks.Go(func() {
			s.hold(list[turn[0]])
			defer s.let(list[turn[0]])
			for _, i := range turn {
				answers[i] = s.ask(bounded, s.opt.Urgent, subject, list[i].id, what)
				s.ordered(ctx, list[i], answers[i])
			}
		})
	}
	looks.Wait()
	s.poke()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.answered(ctx, list, answers), nil
}

// hold keeps the sweep away from e's service until let.
func (s *Sweep) hold(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan.hold(e)
}

func (s *Sweep) let(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan.let(e, time.Now())
}

// byService groups devices by what must be asked by one at a time: they would
// only wait for each other.
func byService(list []*entry) map[string][]int {
	groups := map[string][]int{}
	for i, e := range list {
		groups[e.service] = append(groups[e.service], i)
	}
	return groups
}

// ordered notes what an ordered look found. One that was mended is then asked as
// often as others again.
func (s *Sweep) ordered(ctx context.Context, e *entry, a answer) {
	if a.abandoned {
		return
	}
	s.mu.Lock()
	news := s.took(e, a)
	if s.opt.Every > 0 {
		s.plan.hasten(e, s.due(e, time.Now()))
	}
	s.mu.Unlock()
	s.tell(ctx, a, news)
}

// answered gives what is known now. What could not be asked now says so: an old
// answer must not be taken for the one that was ordered.
func (s *Sweep) answered(ctx context.Context, list []*entry, answers []answer) []Result {
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
