package view

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/policy"
)

const (
	// surveyPatience is how long a kind may answer with errors before it counts as not seen. An
	// API server that is busy recovers in less.
	surveyPatience = 3 * time.Second
	surveyPoll     = 20 * time.Millisecond
)

// SurveyedKind is one kind that fenced watches. Problem says why its objects were not seen.
type SurveyedKind struct {
	Management  bool // it is on a management API of its own
	Group, Kind string
	Served      bool
	Objects     int
	Problem     string
}

// Survey reads all that is watched once, with the code that watches it for the daemon: the kinds, and all objects as Changes
// returns them first. It may be called once, and not beside Run.
func (c *Cache) Survey(ctx context.Context) (kinds []SurveyedKind, all []policy.Change) {
	running, stop := context.WithCancel(ctx)
	var g sync.WaitGroup
	g.Go(func() { c.Run(running) })
	for range 2 { // the requests of the checks' templates are watched once the checks are known
		c.await(ctx)
		c.adjustRequests()
	}
	kinds, all = c.Kinds(ctx), c.Changes()
	stop()
	g.Wait()
	return kinds, all
}

// await waits until each kind is in the view, or has only errors.
func (c *Cache) await(ctx context.Context) {
	start := time.Now()
	tick := time.NewTicker(surveyPoll)
	defer tick.Stop()
	for !c.isRead(time.Since(start) > surveyPatience) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// isRead reports whether each kind is in the view. With problems, a kind that cannot be read
// counts, too.
func (c *Cache) isRead(problems bool) bool {
	for _, st := range c.stores() {
		if at, problem := st.state(); at.IsZero() && (!problems || problem == "") {
			return false
		}
	}
	return true
}

// Kinds lists the kinds that are watched, each once for each API.
func (c *Cache) Kinds(ctx context.Context) []SurveyedKind {
	var kinds []SurveyedKind
	for _, st := range c.stores() {
		k := SurveyedKind{Management: st.side.IsApart(), Group: st.Group, Kind: st.Kind, Served: true}
		if !st.builtIn() {
			_, err := st.side.Find(ctx, st.Resource)
			if k.Served = err == nil; err != nil && !errors.Is(err, client.ErrNotInstalled) {
				k.Problem = err.Error()
			}
		}
		at, problem := st.state()
		k.Objects = st.count()
		if at.IsZero() {
			k.Problem = cmp.Or(problem, k.Problem, "no answer in time")
		}
		i := slices.IndexFunc(kinds, func(o SurveyedKind) bool {
			return o.Management == k.Management && o.Group == k.Group && o.Kind == k.Kind
		})
		if i < 0 {
			kinds = append(kinds, k)
			continue
		}
		kinds[i].Objects += k.Objects
		kinds[i].Problem = cmp.Or(kinds[i].Problem, k.Problem)
	}
	return kinds
}

func (s *store) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items)
}
