package power

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	// ProbeRetry is the pause after a probe that a gate refused.
	ProbeRetry = 30 * time.Second
	// FailedTwice: a level that does not answer is passed over for the next only
	// when it did not in two probes in a row.
	FailedTwice = 2

	backoffMost = 10 * time.Minute // between two probes of a power level that keeps failing
	backoffKept = time.Hour        // after that it is as if it had never failed
)

// probeBackoff spaces out the probes of power levels that keep failing where a wrong
// password looks like a dead device: ipmitool and most agents cannot tell. It is
// for probes; a run asks in its own time.
type probeBackoff struct {
	mu      sync.Mutex
	failing map[string]failing
}

// failing is a power level that did not answer.
type failing struct {
	times int // in a row
	err   error
	until time.Time
}

// levelKey names a power level by what it switches.
func levelKey(l bmc.Level) string { return strings.Join(bmc.Host{Levels: []bmc.Level{l}}.Keys(), "\n") }

// wait is how a level failed that is not to be probed yet; nil when it may be.
func (p *probeBackoff) wait(l bmc.Level) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.failing[levelKey(l)]
	if !ok || !time.Now().Before(f.until) {
		return nil
	}
	return f.err
}

// note takes in how a probe of a level went. What only had to make way for others
// says nothing about it.
func (p *probeBackoff) note(l bmc.Level, err error) {
	if !slices.ContainsFunc(l.Devices, func(d bmc.Device) bool { return !d.IsNative() }) || errors.Is(err, ErrInUse) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, key := time.Now(), levelKey(l)
	maps.DeleteFunc(p.failing, func(_ string, f failing) bool { return now.Sub(f.until) > backoffKept })
	if err == nil {
		delete(p.failing, key)
		return
	}
	f := failing{times: p.failing[key].times + 1, err: err, until: now}
	if f.times >= FailedTwice { // before that the next level is not tried
		f.until = now.Add(min(ProbeRetry<<min(f.times-FailedTwice, 8), backoffMost))
	}
	p.failing[key] = f
}

// forget lets the levels of a host be probed at once.
func (p *probeBackoff) forget(h bmc.Host) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range h.Levels {
		delete(p.failing, levelKey(l))
	}
}
