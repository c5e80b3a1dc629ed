package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/rig"
)

const (
	poll = 200 * time.Millisecond
	// backWithin is how long after the faults each host is back. A run that gave up tries again after half a minute at most.
	backWithin = 4 * time.Minute
	// startWithin bounds the start of a site. A busy machine may need minutes.
	startWithin = 4 * time.Minute
)

var times = limits{takeover: 5 * time.Second, slack: 500 * time.Millisecond, back: backWithin}

// result is what one schedule led to.
type result struct {
	Seed       uint64
	Schedule   []string
	Error      string // the drill itself failed: it says nothing about fenced
	Wrong      []string
	Kept       string        // the directory with logs and history, if something is wrong
	Took, Back time.Duration // all of it; from the end of the faults until all hosts are back
	CPU        time.Duration // with that of the daemons, etcd and all else
	Hung       int
	Commands   int
	Deletions  int
	Owners     int // claims
	Takeovers  int // claims after an owner that was lost
	Switched   int // hosts that got commands of both bastions
}

// play plays the schedule of a seed, in the network namespace of this process.
func play(ctx context.Context, a ask) (r result) {
	began := time.Now()
	r = result{Seed: a.Seed}
	schedule := draw(a.Seed)
	for _, f := range schedule {
		r.Schedule = append(r.Schedule, f.String())
	}
	dir, err := os.MkdirTemp(a.Dir, fmt.Sprintf("fenced-drill-%d-", a.Seed))
	if err != nil {
		r.Error = err.Error()
		return r
	}
	all, err := playIn(ctx, dir, schedule, a.Program)
	r.count(all)
	if err != nil {
		r.Error = err.Error()
	} else {
		r.Wrong = check(all, times)
	}
	if r.Took = time.Since(began); err == nil && len(r.Wrong) == 0 {
		_ = os.RemoveAll(dir) // errors are harmless in the temporary directory
		return r
	}
	r.Kept = dir
	var text strings.Builder
	for _, list := range [][]string{r.Schedule, r.Wrong} {
		fmt.Fprintln(&text, strings.Join(list, "\n")+"\n")
	}
	for _, e := range all {
		fmt.Fprintln(&text, e)
	}
	_ = os.WriteFile(filepath.Join(dir, "history.log"), []byte(text.String()), 0o600) // the violation is told without it
	return r
}

func playIn(ctx context.Context, dir string, schedule []fault, program string) ([]event, error) {
	starting, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	s, err := newSite(starting, dir, program)
	if err != nil {
		return nil, err
	}
	defer s.end()
	s.cluster.KeepLogs()
	s.etcd.KeepLogs()
	if err := s.weather(ctx, schedule); err != nil {
		return nil, err
	}
	s.history.add(event{Kind: heal})
	err = s.awaitBack(ctx)
	all, _ := s.history.events()
	return all, errors.Join(err, s.cluster.Died(), s.etcd.Died())
}

// awaitReady waits until a bastion owns the cluster and both see its Nodes.
func (s *site) awaitReady(ctx context.Context) error {
	for {
		seen, owners := 0, 0
		for _, b := range s.bastion {
			if c, _, err := b.status(ctx); err == nil && c.Nodes == len(hostNames) {
				seen++
				if c.Owner && c.Problem == "" {
					owners++
				}
			}
		}
		if seen == len(bastions) && owners == 1 {
			return nil
		}
		if !rig.Sleep(ctx, poll) {
			return fmt.Errorf("wait until one bastion acts: %w\n%s\n%s", ctx.Err(), s.bastion[one].logTail(10), s.bastion[two].logTail(10))
		}
	}
}

// status is what a daemon says of the cluster and of its open runs.
func (b *bastion) status(ctx context.Context) (wire.ClusterStatus, []wire.RunStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := b.client.Status(ctx)
	if err != nil || len(r.Value.Clusters) != 1 {
		return wire.ClusterStatus{}, nil, errors.Join(err, ctx.Err())
	}
	return r.Value.Clusters[0], r.Value.Runs, nil
}

// weather plays the faults, each in its time, and ends those that are left.
func (s *site) weather(ctx context.Context, schedule []fault) error {
	began := time.Now()
	since := began.Sub(s.history.begin)
	ctx, cancel := context.WithDeadline(ctx, began.Add(healedAfter))
	defer cancel()
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for _, f := range schedule {
		wg.Go(func() {
			if !s.awaitEvents(ctx, f.After, f.Times, since) || !rig.Sleep(ctx, f.At) || time.Since(began) > storm {
				return
			}
			undo, err := s.apply(ctx, f)
			if err == nil && undo != nil {
				rig.Sleep(ctx, f.Lasts)
				err = undo()
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", f, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// awaitEvents waits for so many events of a kind from a time on, and reports whether they came before the end of ctx. 0 does not wait.
func (s *site) awaitEvents(ctx context.Context, wanted kind, times int, since time.Duration) bool {
	for times > 0 {
		all, more := s.history.events()
		if len(slices.DeleteFunc(all, func(e event) bool { return e.Kind != wanted || e.At < since })) >= times {
			break
		}
		select {
		case <-ctx.Done():
			return false
		case <-more:
		}
	}
	return ctx.Err() == nil
}

// called is the party that a fault names: the owner and the other bastion are those at this moment.
func (s *site) called(name string) string {
	if name != "owner" && name != "other" {
		return name
	}
	all, _ := s.history.events()
	owner := one
	for _, e := range all {
		if e.Kind == claim {
			owner = e.By
		}
	}
	if (owner == one) == (name == "owner") {
		return one
	}
	return two
}

// apply begins a fault, and returns what ends it; nil if nothing does.
func (s *site) apply(ctx context.Context, f fault) (undo func() error, err error) {
	what, whom, _ := strings.Cut(f.What, " ")
	switch what {
	case "hang":
		return nil, s.hang(ctx, whom)
	case "late":
		return nil, s.hosts[whom].bmc.LateOff(f.Lasts)
	case "slow":
		whom = s.called(whom)
		return func() error { return s.net.delay(whom, -1) }, s.net.delay(whom, 1)
	case cut, mute, lossy:
		links := s.links(whom)
		return func() error { return s.net.change(what, links, -1) }, s.net.change(what, links, 1)
	}
	whom = s.called(whom)
	if b := s.bastion[whom]; b != nil {
		return b.disturb(what), nil
	}
	return s.disturbMember(what, slices.Index(members, whom))
}

// links are those that a fault names: A-B both directions, A>B and A<B one.
func (s *site) links(whom string) []link {
	at := strings.IndexAny(whom, "-<>")
	from, to := s.called(whom[:at]), whom[at+1:]
	links := between(from, to, whom[at] != '-')
	if whom[at] == '<' {
		for i, l := range links {
			links[i] = link{l.to, l.from}
		}
	}
	return links
}

// disturb kills or stops a daemon, and returns what starts it again or lets it go on.
func (b *bastion) disturb(what string) (undo func() error) {
	if what == "stop" {
		b.signal(syscall.SIGSTOP)
		return func() error { b.signal(syscall.SIGCONT); return nil }
	}
	b.want(-1)
	return func() error { b.want(1); return nil }
}

// disturbMember does so to a member of etcd. One that another fault has already killed stays as it is.
func (s *site) disturbMember(what string, i int) (undo func() error, err error) {
	if what == "stop" {
		_ = s.etcd.Freeze(i)
		return func() error { _ = s.etcd.Thaw(i); return nil }, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down[i] {
		return nil, nil
	}
	s.down[i] = true
	s.etcd.Kill(i)
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.down[i] = false
		return s.etcd.Restart(i)
	}, nil
}

// awaitBack waits until each host that hung is back and no run is open, or something is wrong already, and notes when each host was. That some never are is for check to say.
func (s *site) awaitBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, backWithin)
	defer cancel()
	all, _ := s.history.events()
	all = slices.DeleteFunc(all, func(e event) bool { return e.Kind != hang })
	whileOpen := times
	whileOpen.open = true
	for {
		all = slices.DeleteFunc(all, func(e event) bool {
			isBack := !s.isAway(e.Host) && s.hosts[e.Host].bmc.Power()
			if isBack {
				s.history.add(event{Kind: back, Host: e.Host})
			}
			return isBack
		})
		sofar, _ := s.history.events()
		if len(check(sofar, whileOpen)) > 0 || len(all) == 0 && s.quiet(ctx) || !rig.Sleep(ctx, poll) {
			return context.Cause(s.life)
		}
	}
}

// quiet reports whether a bastion owns the cluster and has no open run.
func (s *site) quiet(ctx context.Context) bool {
	for _, b := range s.bastion {
		if c, runs, err := b.status(ctx); err == nil && c.Owner && c.Problem == "" && len(runs) == 0 {
			return true
		}
	}
	return false
}

// count fills in what happened.
func (r *result) count(all []event) {
	by := map[string]map[string]bool{}
	healed, last := time.Duration(0), time.Duration(0)
	for _, e := range all {
		switch e.Kind {
		case command:
			r.Commands++
			if by[e.Host] == nil {
				by[e.Host] = map[string]bool{}
			}
			by[e.Host][e.By] = true
		case deletion:
			r.Deletions++
		case claim:
			r.Owners++
			if e.Wait {
				r.Takeovers++
			}
		case hang:
			r.Hung++
		case heal:
			healed = e.At
		case back:
			last = e.At
		}
	}
	for _, who := range by {
		if len(who) == len(bastions) {
			r.Switched++
		}
	}
	r.Back = max(0, last-healed)
}
