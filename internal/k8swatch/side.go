package k8swatch

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/event"
)

// side is one API server of a cluster, with the kinds that are watched there.
type side struct {
	c          *Cluster
	name       string
	kubeconfig string
	log        *zap.Logger
	listed     chan struct{} // a full list was received: keepFresh reads at once
	discovery  discovery
	events     *eventWriter

	mu      sync.Mutex
	clients *clients
	stores  []*store
	// begin starts the watch of a store; nil while no watches run.
	begin func(*store)
	clock offset
}

func newSide(c *Cluster, name, kubeconfig string) *side {
	s := &side{c: c, name: name, kubeconfig: kubeconfig, log: c.log.With(zap.String("api", name)), listed: make(chan struct{}, 1)}
	s.events = newEventWriter(s)
	return s
}

func (s *side) api() *clients {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients
}

// notOlder returns the options of a list that is at least as new as the view of a
// kind; without a view, the newest.
func (s *side) notOlder(kind, group, namespace string) metav1.ListOptions {
	o := metav1.ListOptions{Limit: pageSize}
	for _, st := range s.watched() {
		if st.kind == kind && st.group == group && (st.namespace == "" || st.namespace == namespace) {
			if v := st.version(); v > 0 {
				o.ResourceVersion, o.ResourceVersionMatch = strconv.FormatUint(v, 10), metav1.ResourceVersionMatchNotOlderThan
			}
		}
	}
	return o
}

// isApart reports whether this is a management API of its own.
func (s *side) isApart() bool { return s == s.c.manage && s != s.c.work }

// watched returns the current stores of this side.
func (s *side) watched() []*store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.stores)
}

// add starts to watch a kind.
func (s *side) add(st *store) {
	st.side, st.log, st.items, st.marks = s, s.log, map[objectName]entry{}, map[objectName]event.RunMark{}
	st.added = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores = append(s.stores, st)
	if s.begin != nil {
		s.begin(st)
	}
}

// drop stops watching a kind and removes its objects from the view.
func (s *side) drop(st *store) {
	s.mu.Lock()
	s.stores = slices.DeleteFunc(s.stores, func(o *store) bool { return o == st })
	if st.stop != nil {
		st.stop()
	}
	s.mu.Unlock()
	st.close()
}

// run watches until ctx ends. It starts over when the kubeconfig was replaced or
// the API went back in time.
func (s *side) run(ctx context.Context) {
	for ctx.Err() == nil {
		watching, stop := context.WithCancel(ctx)
		var g sync.WaitGroup
		s.mu.Lock()
		s.begin = func(st *store) {
			var one context.Context
			one, st.stop = context.WithCancel(watching)
			st.watch(one, s.clients, &g)
		}
		for _, st := range s.stores {
			s.begin(st)
		}
		s.mu.Unlock()
		g.Go(func() { s.keepFresh(watching, stop) })
		s.untilReplaced(watching)
		s.mu.Lock()
		s.begin = nil
		s.mu.Unlock()
		stop()
		g.Wait()
	}
}

// connect makes clients from the current kubeconfig.
func (s *side) connect() (*clients, error) {
	if guard := s.c.cfg.Guard; guard != nil {
		if err := guard(s.kubeconfig); err != nil {
			return nil, fmt.Errorf("read kubeconfig %s: %w", s.kubeconfig, err)
		}
	}
	return connect(s.kubeconfig, &s.clock)
}

// untilReplaced returns when ctx ends or the kubeconfig was replaced by a usable
// one.
func (s *side) untilReplaced(ctx context.Context) {
	tick := time.NewTicker(s.c.cfg.FreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if stamp, err := stampOf(s.kubeconfig); err != nil || stamp == s.api().file {
			continue // it may be in the middle of being replaced; check again
		}
		cl, err := s.connect()
		if err != nil {
			s.log.Warn("the changed kubeconfig cannot be used; the old one stays in use", zap.Error(err))
			continue
		}
		s.mu.Lock()
		s.clients = cl
		s.mu.Unlock()
		s.log.Info("the kubeconfig was read again")
		return
	}
}
