package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// session is a lease of etcd that this instance renews. While it lasts, the keys on it
// are there and nobody else can own what they say.
//
// The clock is the monotonic one of this machine alone: the lease cannot run out before
// its TTL has passed since the last renewal that succeeded was SENT, and a guard of a
// fifth is taken off for a clock that runs slower than etcd's and for what is under way
// when the time comes. While this host is suspended that clock stands still, so the time
// of each suspend is taken off, too. // I19
type session struct {
	client *clientv3.Client
	id     clientv3.LeaseID
	ttl    time.Duration
	guard  time.Duration
	ctx    context.Context // ends when the session is lost
	stop   context.CancelFunc

	suspended func() time.Duration // of this host since it was booted

	mu    sync.Mutex
	sent  moment // the last renewal that succeeded
	lost  bool
	timer *time.Timer
}

// moment is when something was sent, and for how long this host had been suspended then.
type moment struct {
	at        time.Time
	suspended time.Duration
}

func momentOf(suspended func() time.Duration) moment {
	slept := suspended() // first: a suspend in between is then taken off
	return moment{time.Now(), slept}
}

// openSession grants a lease. It ends by its own clock, not with ctx: its keys must
// stay while a guard winds up.
func openSession(ctx context.Context, client *clientv3.Client, ttl time.Duration, suspended func() time.Duration) (*session, error) {
	sent := momentOf(suspended)
	granted, err := client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, fmt.Errorf("get a lease: %w", err)
	}
	// etcd counts whole seconds and has a least TTL; a longer one than we count on is safe.
	ttl = min(ttl, time.Duration(granted.TTL)*time.Second)
	s := newSession(ctx, sent, ttl, suspended)
	s.client, s.id = client, granted.ID
	return s, nil
}

// newSession begins to count the time of a lease that was asked for then.
func newSession(ctx context.Context, sent moment, ttl time.Duration, suspended func() time.Duration) *session {
	s := &session{ttl: ttl, guard: ttl / 5, suspended: suspended, sent: sent}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock() // check may be called before timer is set
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(time.Until(s.until(sent)), s.check)
	return s
}

// Until is the moment after which nothing may be sent.
func (s *session) Until() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until(s.sent)
}

// until is how long a renewal that was sent then is good for, by the clock of now.
func (s *session) until(sent moment) time.Time {
	return sent.at.Add(s.ttl - s.guard - max(0, s.suspended()-sent.suspended))
}

// check ends the session when its time is over.
func (s *session) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(s.until(s.sent)); left > 0 && !s.lost { // renewed while this was on its way
		s.timer.Reset(left)
		return
	}
	s.lost = true
	s.stop()
}

// end loses the session now.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
	s.timer.Stop()
	s.stop()
}

// renewed notes a renewal that was sent then. What comes too late counts no more: the
// guards were told already that the session is lost.
func (s *session) renewed(sent moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost || !sent.at.After(s.sent.at) {
		return
	}
	s.sent = sent
	s.timer.Reset(time.Until(s.until(sent)))
}

var errLeaseGone = errors.New("the lease is gone")

// keep renews the lease each third of its TTL until the session is lost.
func (s *session) keep() {
	pause := s.ttl / 3
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(pause):
		}
		s.check() // a suspend has passed the timer by
		sent := momentOf(s.suspended)
		err := s.renew()
		switch {
		case err == nil:
			s.renewed(sent)
			pause = s.ttl/3 - time.Since(sent.at)
		case errors.Is(err, errLeaseGone):
			s.end()
		default:
			pause = s.ttl / 30 // another member may answer
		}
	}
}

// renew makes one attempt. The client's own would be repeated without a pause while
// no member can be reached, and does not say when it was sent.
func (s *session) renew() error {
	ctx, cancel := context.WithTimeout(s.ctx, s.ttl/6)
	defer cancel()
	stream, err := clientv3.RetryLeaseClient(s.client).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(s.id)}); err != nil {
		return err
	}
	answer, err := stream.Recv()
	if err != nil {
		return err
	}
	if answer.TTL <= 0 {
		return errLeaseGone
	}
	return nil
}

// revoke removes the lease and its keys. If nobody answers, they go by themselves.
func (s *session) revoke(ctx context.Context) {
	s.end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
	defer cancel()
	_, _ = s.client.Revoke(ctx, s.id) // the lease runs out anyway
}
