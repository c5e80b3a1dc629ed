package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// outlet is the PDU that feeds n-1: it tells no identity, and without mains the
// BMC says nothing.
type outlet struct {
	w     *world
	sent  []bmc.Command
	cut   bool
	reads int
	// staysOff: the host does not start when its mains return.
	staysOff bool
	// says is what it reads whatever it is; nil for the truth.
	says *bmc.PowerState
}

// withOutlet gives the host a second power level.
func withOutlet(w *world) (*outlet, func(*engine.Options)) {
	p := &outlet{w: w}
	w.host.Levels = append(w.host.Levels, bmc.Level{Devices: []bmc.Device{{
		Driver: bmc.DriverFenceAgent, Agent: "fence_apc_snmp", Endpoint: bmc.Endpoint{Host: "192.0.2.200"}, Parameters: map[string]string{"plug": "7"}}}})
	return p, func(o *engine.Options) {
		o.Open = func(d bmc.Device) (bmc.Power, error) {
			if d.Driver == bmc.DriverFenceAgent {
				return p, nil
			}
			return fed{power{w}, p}, nil
		}
	}
}

func (p *outlet) Read(context.Context) (bmc.Reading, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.reads++
	s := bmc.On
	if p.cut {
		s = bmc.Off
	}
	if p.says != nil {
		s = *p.says
	}
	return bmc.Reading{State: s, At: time.Now(), Session: 1}, nil
}

func (p *outlet) Send(_ context.Context, c bmc.Command) (bmc.Receipt, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.sent = append(p.sent, c)
	p.cut = c == bmc.CommandOff
	if p.w.on = !p.cut && !p.staysOff; p.cut {
		p.w.offAt = time.Now()
	}
	return bmc.Receipt{}, nil
}

func (p *outlet) Close(context.Context) error { return nil }

// fed is a BMC that has its power from the outlet.
type fed struct {
	power
	from *outlet
}

func (f fed) Read(ctx context.Context) (bmc.Reading, error) {
	f.w.mu.Lock()
	cut := f.from.cut
	f.w.mu.Unlock()
	if cut {
		return bmc.Reading{}, silent()
	}
	return f.power.Read(ctx)
}

func silent() error {
	return &bmc.Error{Kind: bmc.KindUnreachable, Op: "read power state", Err: errors.New("no answer")}
}

func (w *world) setReadErr(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readErr = err
}

// enrolled starts an engine and enrolls n-1, whose levels are all well.
func enrolled(t *testing.T, w *world, store *failingStore, change func(*engine.Options)) (*engine.Engine, func()) {
	e, _, stop := start(t, w, store, change)
	time.Sleep(time.Second)
	_, err := e.Enroll(t.Context(), byHand)
	require.NoError(t, err)
	return e, stop
}

// A dead BMC: the outlet proves the host off, and the host comes back by it.
func TestDeadBMCIsPassedOverForTheOutlet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		w.setReadErr(silent())
		time.Sleep(70 * time.Second)
		require.Empty(t, e.Runs("c"), "one failure may be chance")
		time.Sleep(25 * time.Second)
		r := only(t, e)
		assert.Equal(t, 1, r.Level)
		assert.Equal(t, 2, r.Limits.Levels)
		time.Sleep(10 * time.Minute)
		r = only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.Equal(t, remediate.ProofDevice, r.Proof)
		assert.Equal(t, []bmc.Command{bmc.CommandOff, bmc.CommandOn}, p.sent[:2])
		assert.Zero(t, w.count(bmc.CommandOff), "the BMC was given none")
		assert.Equal(t, 1, w.deleted())
		stop()
	})
}

// A BMC that answers every second time is the level that is used.
func TestLevelThatFailedOnceIsUsed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		w.setReadErr(silent())
		time.Sleep(65 * time.Second)
		w.setReadErr(nil)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.Equal(t, remediate.ProofBMC, r.Proof)
		assert.Empty(t, p.sent)
		stop()
	})
}

// Two failures with an answer between them are not two in a row.
func TestFailuresInARowPassALevelOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.contested = remediate.Yes
		e, stop := enrolled(t, w, store, levels)
		time.Sleep(44 * time.Second)
		for _, err := range []error{silent(), nil, silent()} { // at the probes, at 60, 90 and 120 s
			w.setReadErr(err)
			time.Sleep(30 * time.Second)
		}
		w.mu.Lock()
		w.contested = remediate.No
		w.mu.Unlock()
		time.Sleep(10 * time.Second)
		require.Empty(t, e.Runs("c"))
		w.mu.Lock()
		assert.Equal(t, 1, p.reads, "when it was enrolled")
		w.mu.Unlock()
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, only(t, e).Level)
		stop()
	})
}

// A BMC that accepts Off and ignores it: the next level, with a proof of its own.
func TestRunGoesOnToTheNextLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.ignoreOff, p.staysOff = true, true
		e, stop := enrolled(t, w, store, levels)
		time.Sleep(90 * time.Second)
		r := only(t, e)
		require.Zero(t, r.Level)
		require.NotZero(t, w.count(bmc.CommandOff))
		time.Sleep(15 * time.Minute)
		r = only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.Equal(t, remediate.ProofDevice, r.Proof)
		assert.Equal(t, bmc.CommandOff, p.sent[0])
		assert.Equal(t, bmc.CommandOn, w.commands[len(w.commands)-1], "mains alone do not start the host") // I20
		assert.Equal(t, 1, w.deleted())
		stop()
	})
}

// A run is taken up at its level after a restart.
func TestRunResumesAtItsLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.ignoreOff = true
		e, stop := enrolled(t, w, store, levels)
		time.Sleep(2*time.Minute + 3*time.Second)
		require.Equal(t, 1, only(t, e).Level)
		stop()
		sent := w.count(bmc.CommandOff)
		e, _, stop = start(t, w, store, levels)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Equal(t, sent, w.count(bmc.CommandOff))
		assert.NotEmpty(t, p.sent)
		stop()
	})
}

// An account that is refused is not tried again and again: BMCs lock it.
func TestRefusedAccountIsPassedOverAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		w.setReadErr(&bmc.Error{Kind: bmc.KindAuth, Op: "open session", Err: errors.New("refused")})
		w.mu.Lock()
		before := w.reads
		w.mu.Unlock()
		time.Sleep(62 * time.Second)
		r := only(t, e)
		assert.Equal(t, 1, r.Level)
		time.Sleep(10 * time.Minute)
		stop()
		assert.Less(t, w.reads-before, 12)
	})
}

// Nor by probes that go on for other reasons.
func TestProbesLeaveARefusedAccountInPeace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, levels := withOutlet(w)
		w.contested = remediate.Yes
		_, stop := enrolled(t, w, store, levels)
		w.setReadErr(&bmc.Error{Kind: bmc.KindAuth, Op: "open session", Err: errors.New("refused")})
		time.Sleep(5 * time.Minute)
		stop()
		assert.Equal(t, 2, w.reads, "when it was enrolled, and once")
	})
}

// A run that comes back to a level that refused its account leaves it in peace.
func TestRefusedAccountIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.ignoreOff = true
		e, stop := enrolled(t, w, store, levels)
		time.Sleep(62 * time.Second)
		require.Equal(t, 1, w.count(bmc.CommandOff))
		w.setReadErr(&bmc.Error{Kind: bmc.KindAuth, Op: "open session", Err: errors.New("refused")})
		w.mu.Lock()
		before := w.reads
		w.mu.Unlock()
		time.Sleep(4 * time.Minute)
		stop()
		assert.NotEmpty(t, p.sent)
		assert.GreaterOrEqual(t, only(t, e).OffLevel, 1)
		assert.Equal(t, 1, w.reads-before, "by the level itself, and never as a witness")
	})
}

// Another machine that answers is no reason to try the outlet: the inventory is wrong.
func TestAnotherMachineAnswersIsNoNextLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		w.mu.Lock()
		w.bmcUUID = "4c4c4544-0042-3510-8054-b4c04f4d9999"
		w.mu.Unlock()
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Empty(t, p.sent)
		assert.Equal(t, "BMC 4c4c4544-0042-3510-8054-b4c04f4d9999, Node "+hostUUID, gate(t, e, policy.IdentityMismatch).Value)
		stop()
	})
}

// An outlet of which nobody has said that it feeds this host is never switched. // I8
func TestOutletThatIsNotEnrolledIsNeverSwitched(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		e, _, stop := start(t, w, store, levels)
		time.Sleep(time.Second)
		w.setReadErr(silent())
		time.Sleep(5 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		gate(t, e, policy.NotEnrolled)
		_, err := e.Fence(t.Context(), byHand)
		var refusal *engine.Refusal
		require.ErrorAs(t, err, &refusal, "people are bound, too")
		assert.Equal(t, policy.NotEnrolled, refusal.Reason)
		w.setReadErr(nil)
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		w.setReadErr(silent())
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 1, only(t, e).OffLevel)
		assert.NotEmpty(t, p.sent)
		stop()
	})
}

// A person does not have to fence twice because a BMC is dead.
func TestManualFenceTriesTheNextLevel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.check.Paused = true
		p, levels := withOutlet(w)
		e, stop := enrolled(t, w, store, levels)
		w.setReadErr(silent())
		_, err := e.Fence(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.NotEmpty(t, p.sent)
		stop()
	})
}
