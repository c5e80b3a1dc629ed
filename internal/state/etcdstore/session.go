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

// session is a lease of etcd that this instance renews. While the session lasts, the keys on the
// lease exist, and no other instance can own the clusters that they name.
//
// The session uses only the monotonic clock of this machine. A lease cannot expire before its
// TTL has passed since the last successful renewal was sent. The session ends earlier, by a
// margin of a fifth of the TTL: the clock may be slower than the clock of etcd, and a command
// may be under way. The monotonic clock stands still while this host is suspended, so the
// duration of each suspend is subtracted too. // I19
type session struct {
	client *clientv3.Client
	id     clientv3.LeaseID
	ttl    time.Duration
	margin time.Duration   // how long before the TTL the session ends
	ctx    context.Context // ends when the session is lost
	stop   context.CancelFunc

	suspended func() time.Duration // how long this host has been suspended since it was booted

	mu          sync.Mutex
	lastRenewal moment // when the last successful renewal was sent
	lost        bool
	timer       *time.Timer
}

// moment is a time, and how long this host had been suspended at that time.
type moment struct {
	at        time.Time
	suspended time.Duration
}

func currentMoment(suspended func() time.Duration) moment {
	before := suspended() // first, so that a suspend in between is subtracted
	return moment{time.Now(), before}
}

// openSession gets a lease. The session does not end with ctx, but by its own clock: its keys
// must exist until the last callback has returned.
func openSession(ctx context.Context, client *clientv3.Client, ttl time.Duration, suspended func() time.Duration) (*session, error) {
	sent := currentMoment(suspended)
	granted, err := client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, fmt.Errorf("get a lease: %w", err)
	}
	// etcd counts whole seconds and has a minimum TTL. A longer TTL than ours is safe.
	ttl = min(ttl, time.Duration(granted.TTL)*time.Second)
	s := newSession(ctx, sent, ttl, suspended)
	s.client, s.id = client, granted.ID
	return s, nil
}

// newSession starts the session of a lease that was requested at that moment.
func newSession(ctx context.Context, sent moment, ttl time.Duration, suspended func() time.Duration) *session {
	s := &session{ttl: ttl, margin: ttl / 5, suspended: suspended, lastRenewal: sent}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock() // endIfExpired may be called before timer is set
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(time.Until(s.expiry(sent)), s.endIfExpired)
	return s
}

// Until returns the time after which the instance must not send anything.
func (s *session) Until() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expiry(s.lastRenewal)
}

// expiry returns when a session ends whose last renewal was sent at that moment.
func (s *session) expiry(sent moment) time.Time {
	return sent.at.Add(s.ttl - s.margin - max(0, s.suspended()-sent.suspended))
}

// endIfExpired ends the session if its time is over.
func (s *session) endIfExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(s.expiry(s.lastRenewal)); left > 0 && !s.lost { // renewed after the timer fired
		s.timer.Reset(left)
		return
	}
	s.lost = true
	s.stop()
}

// end ends the session now.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
	s.timer.Stop()
	s.stop()
}

// recordRenewal records a renewal that was sent at that moment. It ignores a renewal after the
// end of the session: the callbacks already know that the session is lost.
func (s *session) recordRenewal(sent moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost || !sent.at.After(s.lastRenewal.at) {
		return
	}
	s.lastRenewal = sent
	s.timer.Reset(time.Until(s.expiry(sent)))
}

var errLeaseGone = errors.New("the lease is gone")

// runRenewals renews the lease after each third of its TTL until the session ends.
func (s *session) runRenewals() {
	pause := s.ttl / 3
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(pause):
		}
		s.endIfExpired() // after a suspend the timer is late
		sent := currentMoment(s.suspended)
		err := s.renewOnce()
		switch {
		case err == nil:
			s.recordRenewal(sent)
			pause = s.ttl/3 - time.Since(sent.at)
		case errors.Is(err, errLeaseGone):
			s.end()
		default:
			pause = s.ttl / 30 // another member may answer
		}
	}
}

// renewOnce makes one attempt to renew the lease. KeepAlive of the client is no alternative: it
// repeats without a pause while no member can be reached, and does not tell when it sent the
// request.
func (s *session) renewOnce() error {
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

// revoke ends the session and removes the lease with its keys.
func (s *session) revoke(ctx context.Context) {
	s.end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
	defer cancel()
	_, _ = s.client.Revoke(ctx, s.id) // after a failure the lease expires
}
