package k8swatch

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
)

// side is one API server of a cluster, with the kinds that are watched there.
type side struct {
	*client.Server
	c      *Cluster
	listed chan struct{} // a full list was received: keepFresh reads at once

	mu     sync.Mutex
	stores []*store
	// begin starts the watch of a store; nil while no watches run.
	begin func(*store)
}

func newSide(c *Cluster, name, kubeconfig string, apart bool) *side {
	return &side{c: c, Server: client.NewServer(name, kubeconfig, apart, c.cfg.Guard, c.log), listed: make(chan struct{}, 1)}
}

// notOlder returns the options of a list that is at least as new as the view of a
// kind; without a view, the newest.
func (s *side) notOlder(kind, group, namespace string) metav1.ListOptions {
	o := metav1.ListOptions{Limit: client.PageSize}
	for _, st := range s.watched() {
		if st.Kind == kind && st.Group == group && (st.namespace == "" || st.namespace == namespace) {
			if v := st.version(); v > 0 {
				o.ResourceVersion, o.ResourceVersionMatch = strconv.FormatUint(v, 10), metav1.ResourceVersionMatchNotOlderThan
			}
		}
	}
	return o
}

// watched returns the current stores of this side.
func (s *side) watched() []*store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.stores)
}

// add starts to watch a kind.
func (s *side) add(st *store) {
	st.side, st.log, st.items, st.marks = s, s.Log, map[objectName]entry{}, map[objectName]event.RunMark{}
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
			st.watch(one, s.API(), &g)
		}
		for _, st := range s.stores {
			s.begin(st)
		}
		s.mu.Unlock()
		g.Go(func() { s.keepFresh(watching, stop) })
		s.UntilReplaced(watching, s.c.cfg.FreshEvery)
		s.mu.Lock()
		s.begin = nil
		s.mu.Unlock()
		stop()
		g.Wait()
	}
}
