package main

import (
	"context"
	"sync"
	"time"
)

// shareEvery is between two readings of CPU times. Their unit is not finer.
const shareEvery = time.Second / userHz

// sharers are the programs whose CPU time is compared while many Machines fail.
var sharers = [...]string{"fenced", "the API server", "etcd"}

// cpuShares are the CPU times of the sharers. On a wall clock alone, nobody can tell what other
// programs of the machine took.
type cpuShares [len(sharers)]time.Duration

// shares reads CPU times again and again, so that those of any time between can be told.
type shares struct {
	pids  [len(sharers)]int
	stop  context.CancelFunc
	g     sync.WaitGroup
	at    []time.Time
	times []cpuShares
	err   error
}

// startShares begins to read, until measure is called.
func startShares(ctx context.Context, fenced, apiServer, etcd int) *shares {
	s := &shares{pids: [...]int{fenced, apiServer, etcd}}
	ctx, s.stop = context.WithCancel(ctx)
	s.g.Go(func() {
		for s.read() && sleep(ctx, shareEvery) {
		}
	})
	return s
}

// read returns false after an error.
func (s *shares) read() bool {
	var all cpuShares
	for i, pid := range s.pids {
		if all[i], s.err = cpuTimeOf(pid, sharers[i]); s.err != nil {
			return false
		}
	}
	s.at, s.times = append(s.at, time.Now()), append(s.times, all)
	return true
}

// measure ends the reading, and returns the CPU times between two instants.
func (s *shares) measure(from, to time.Time) (used cpuShares, err error) {
	s.stop()
	if s.g.Wait(); s.err != nil {
		return used, s.err
	}
	before, after := s.last(from), s.last(to)
	for i := range used {
		used[i] = after[i] - before[i]
	}
	return used, nil
}

// last is the last reading not after an instant, or else the first.
func (s *shares) last(t time.Time) cpuShares {
	found := s.times[0]
	for i, at := range s.at {
		if !at.After(t) {
			found = s.times[i]
		}
	}
	return found
}
