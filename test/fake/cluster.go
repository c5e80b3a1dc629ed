package fake

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// Cluster is a State with its lock. It implements engine.Kube and hosts.Inventory,
// and its watches implement admit.Watch.
type Cluster struct {
	mu       sync.Mutex
	state    *State
	ticked   time.Time
	resynced time.Time
	looks    int
	onLook   func(looks int)
}

func New(name string) *Cluster { return &Cluster{state: NewState(name)} }

// Do runs f while the cluster does not change. f must not keep references to what
// it gets.
func (c *Cluster) Do(f func(s *State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.state)
}

// Run lets time pass until ctx ends, and resyncs the watches once a minute. If
// several callers run it, time still passes once per second.
func (c *Cluster) Run(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(time.Second)
		c.Do(func(s *State) {
			if now := time.Now(); now.Sub(c.ticked) >= time.Second {
				c.ticked = now
				s.Tick(now)
				if now.Sub(c.resynced) >= time.Minute {
					c.resynced = now
					s.resync()
				}
			}
		})
	}
}

// OnLook sets a function that is called at each uncached read, before it is
// answered, with the number of reads so far.
func (c *Cluster) OnLook(f func(looks int)) { c.Do(func(*State) { c.onLook = f }) }

// Looks is the number of uncached reads.
func (c *Cluster) Looks() (n int) { c.Do(func(*State) { n = c.looks }); return n }

// Look implements engine.Kube.
func (c *Cluster) Look(_ context.Context, r remediate.Run, backups [][]byte) (f run.Fresh) {
	var hook func(int)
	var looks int
	c.Do(func(*State) { c.looks++; looks, hook = c.looks, c.onLook })
	if hook != nil {
		hook(looks)
	}
	if err := c.exchange(func(s *State) error { f = s.Look(r, backups); return nil }); err != nil {
		f.Err = err
	}
	return f
}

// exchange is one request to the API server, if it answers.
func (c *Cluster) exchange(f func(s *State) error) (err error) {
	c.Do(func(s *State) {
		if err = ErrAPI; !s.Down() {
			err = f(s)
		}
	})
	return err
}

// Backup implements engine.Kube.
func (c *Cluster) Backup(_ context.Context, t remediate.Target) (data []byte, b remediate.Backup, err error) {
	err = c.exchange(func(s *State) (err error) { data, b, err = s.Backup(t); return err })
	return data, b, err
}

// Act implements engine.Kube.
func (c *Cluster) Act(_ context.Context, r remediate.Run, a remediate.Action, backups [][]byte, b remediate.Backup) error {
	return c.exchange(func(s *State) error { return s.Act(r, a, backups, b) })
}

// Restore implements engine.Kube.
func (c *Cluster) Restore(_ context.Context, r remediate.Run, backups [][]byte) (readBack []string, err error) {
	err = c.exchange(func(s *State) (err error) { readBack, err = s.Restore(r, backups); return err })
	return readBack, err
}

// Credentials implements engine.Kube.
func (c *Cluster) Credentials(_ context.Context, _, name string) (user string, password bmc.Secret, err error) {
	c.Do(func(s *State) {
		s.SecretReads++
		a, ok := s.Secrets[name]
		if user, password = a.User, a.Password; !ok {
			err = errors.New("no such Secret")
		}
	})
	return user, password, err
}

// Announce implements engine.Kube.
func (c *Cluster) Announce(_ context.Context, a lead.Announcement) (binds time.Duration, foreign string, err error) {
	err = c.exchange(func(s *State) error {
		s.Fenced.calls++
		s.Fenced.Last = a
		if s.Fenced.Fails == nil {
			binds, foreign = s.Announce(a.Instance, a)
		}
		return s.Fenced.Fails
	})
	return binds, foreign, err
}

// Holder implements engine.Kube.
func (c *Cluster) Holder(_ context.Context, a lead.Announcement) (foreign string, err error) {
	err = c.exchange(func(s *State) error { foreign = s.Holder(a.Instance, a); return s.Fenced.Fails })
	return foreign, err
}

// Announcements returns how often an instance announced itself, and the last
// announcement.
func (c *Cluster) Announcements() (n int, last lead.Announcement) {
	c.Do(func(s *State) { n, last = s.Fenced.calls, s.Fenced.Last })
	return n, last
}

// List implements hosts.Inventory.
func (c *Cluster) List(string) (nodes []string) {
	c.Do(func(s *State) { nodes = slices.Sorted(maps.Keys(s.Entries)) })
	return nodes
}

// Protected implements hosts.Inventory.
func (c *Cluster) Protected(_, node string) (is bool) {
	c.Do(func(s *State) { is = s.Entries[node].Protected })
	return is
}

// Refused implements hosts.Inventory.
func (c *Cluster) Refused(_, of string) (why string) {
	c.Do(func(s *State) { why = s.RefusedEntries[of] })
	return why
}

// Unread implements hosts.Inventory.
func (c *Cluster) Unread() (why string) {
	c.Do(func(s *State) { why = s.UnreadEntries })
	return why
}

// Bare implements hosts.Inventory.
func (c *Cluster) Bare(_, node string) (bare *bmc.Host) {
	c.Do(func(s *State) {
		if h, found := s.Entries[node]; found {
			bare = &h
		}
	})
	return bare
}

// Find implements hosts.Inventory.
func (c *Cluster) Find(_ context.Context, _, node string) (h bmc.Host, found bool, err error) {
	c.Do(func(s *State) { h, found = s.Entries[node] })
	if why := c.Refused("", node); why != "" {
		return h, true, &reason.Refusal{Reason: reason.InvalidHost, Message: why}
	}
	return h, found, nil
}

// Watch returns a watch of everything without delay; it implements admit.Watch.
func (c *Cluster) Watch() admit.Watch {
	w := &watch{c: c, signal: make(chan struct{}, 1)}
	c.Do(func(s *State) { s.signals = append(s.signals, w.signal) })
	return w
}

type watch struct {
	c      *Cluster
	signal chan struct{}
	listed bool // it starts with a list
	pos    int  // in the history
}

func (w *watch) Changed() <-chan struct{} { return w.signal }

func (w *watch) Changes() (list []policy.Change) {
	w.c.Do(func(s *State) {
		if s.Down() {
			return
		}
		news := s.History[w.pos:]
		if !w.listed {
			w.listed, news = true, Listed(news)
		}
		for _, each := range news {
			each.Value = own(each.Value)
			list = append(list, each.Change)
		}
		w.pos = len(s.History)
	})
	return list
}

// Listed returns what a list shows after a history: the current state of each
// object that exists.
func Listed(history []Change) (objects []Change) {
	last := map[policy.ObjectID]int{}
	for i, each := range history {
		last[each.ID] = i
	}
	for i, each := range history {
		if each.Value != nil && last[each.ID] == i {
			objects = append(objects, each)
		}
	}
	return objects
}

// own returns a copy of what tests may change.
func own(object any) any {
	switch v := object.(type) {
	case *policy.Node:
		c := *v
		return &c
	case *policy.Machine:
		c := *v
		return &c
	case *policy.Check:
		c := *v
		return &c
	case *policy.Request:
		c := *v
		if v.Power != nil {
			power := *v.Power
			c.Power = &power
		}
		return &c
	}
	return object
}

func (w *watch) View() (v admit.View) {
	w.c.Do(func(s *State) {
		if v = (admit.View{Synced: !s.Unsynced, Since: s.back, Skew: s.Skew, SkewKnown: true}); s.Down() {
			v.Age = time.Since(s.lost)
		}
	})
	return v
}
