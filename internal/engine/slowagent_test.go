package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
)

// slowAgent takes its time for each command, as fence agents do, which wait until the
// power has followed. It may take power.AgentSendTimeout.
type slowAgent struct {
	bmc.Power
	off, on time.Duration
	at      atomic.Int64 // the command that it is at work on; zero: nothing
	took    atomic.Int64 // the last command
}

func (s *slowAgent) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	needs, begun := s.off, time.Now()
	if c == bmc.CommandOn {
		needs = s.on
	}
	s.at.Store(int64(c))
	defer func() { s.at.Store(0); s.took.Store(int64(time.Since(begun))) }()
	select {
	case <-ctx.Done(): // the agent is killed
		return bmc.Receipt{}, &bmc.Error{Kind: bmc.KindUnreachable, Op: "send", Err: ctx.Err()}
	case <-time.After(needs):
		return s.Power.Send(ctx, c)
	}
}

// isAt says whether the agent is at work on a command.
func (s *slowAgent) isAt(c bmc.Command) bool { return bmc.Command(s.at.Load()) == c }

// awaitCommand returns when it is.
func (s *slowAgent) awaitCommand(c bmc.Command) {
	for !s.isAt(c) {
		time.Sleep(time.Second)
	}
}

// withSlowAgent gives the host an outlet with an agent that needs so long.
func withSlowAgent(w *world, off, on time.Duration) (*slowAgent, func(*engine.Options)) {
	p, _ := withOutlet(w)
	s := &slowAgent{Power: p, off: off, on: on}
	return s, opening(w.bmc(), s)
}

// An agent gets the time that it may take, although the Lease that says which installation
// acts is never valid for so long at once. // L1
func TestSlowAgentFences(t *testing.T) {
	for _, needs := range []time.Duration{8 * time.Second, 18 * time.Second, 25 * time.Second} {
		t.Run(needs.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				_, slow := withSlowAgent(w, needs, needs)
				e, stop := enrolled(t, w, store, slow)
				w.FailReads(noAnswer())
				time.Sleep(30 * time.Minute)
				r := only(t, e)
				assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
				stop()
			})
		})
	}
}

// slowPair are two instances, of which a owns the cluster, and a host whose BMC has
// died and whose agent needs so long to switch it.
func slowPair(t *testing.T, w *world, store *failingStore, off, on time.Duration) (*pair, *slowAgent) {
	t.Helper()
	agent, slow := withSlowAgent(w, off, on)
	p := newPair(t, w, store, func(_ string, o *engine.Options) { slow(o) })
	p.give("a")
	time.Sleep(time.Second)
	_, err := p.engine["a"].Enroll(t.Context(), byHand)
	require.NoError(t, err)
	w.FailReads(noAnswer())
	return p, agent
}

// The same under a claim, which is valid for 12 s at any moment. // I20
func TestSlowAgentPowersOnUnderAClaim(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, _ := slowPair(t, w, store, time.Second, 14*time.Second)
		time.Sleep(40 * time.Minute)
		r := only(t, p.engine["a"])
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.True(t, w.On(), "the host is left off")
		p.end()
	})
}

// A renewal after the loss of a claim belongs to another owner: a running command keeps
// the end that it had. // I19
func TestCommandDoesNotOutliveAHandOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, agent := slowPair(t, w, store, time.Second, 35*time.Second)
		agent.awaitCommand(bmc.CommandOn)
		time.Sleep(20 * time.Second)
		begun := time.Now()
		p.take("a") // and waits for it
		assert.InDelta(t, 12, time.Since(begun).Seconds(), 1)
		assert.Less(t, time.Duration(agent.took.Load()), 35*time.Second)
		p.end()
	})
}

// A destructive command is cancelled as soon as another installation is known to
// act. // I22
func TestForeignInstallationCancelsACommand(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		agent, slow := withSlowAgent(w, 35*time.Second, time.Second)
		_, stop := enrolled(t, w, store, slow)
		w.FailReads(noAnswer())
		agent.awaitCommand(bmc.CommandOff)
		w.setForeignHolder("fenced instance x holds the Lease")
		time.Sleep(10 * time.Second)
		assert.False(t, agent.isAt(bmc.CommandOff))
		assert.True(t, w.On())
		stop()
	})
}
