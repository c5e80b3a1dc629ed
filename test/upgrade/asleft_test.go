package upgrade_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/test/fake"
)

// asLeft makes the world what the records say of it. With on, the hosts whose Nodes were
// not deleted yet were switched on again by another hand: their old proofs are void.
func asLeft(t *testing.T, w *world, dir string, on bool) {
	store, err := boltstore.Open(filepath.Join(dir, stateFile))
	require.NoError(t, err)
	runs, err := state.LoadRuns(t.Context(), store)
	require.NoError(t, errors.Join(err, store.Close()))
	require.Len(t, runs, 9)
	w.prod.Do(func(s *fake.State) {
		for s.Nodes[handed].ResourceVersion < 5000 { // they go on after those in the records
			s.ChangeNode(handed, func(*fake.Node) {})
		}
		for _, r := range runs {
			h := s.Host(r.Target.Node)
			switch h.Name {
			case isolated, confirmed:
				h.Owned = fake.Owned{} // the backup has what its owner gave it, and nothing else
				s.RemoveNode(h.Name)
				off(t, s, r)
			case deleting, cutting:
				silent(s, r)
				if off(t, s, r); on {
					h.Power(true, "another hand")
					h.Kernel, h.Boots = fake.Hung, 1
				}
			case lying:
				silent(s, r)
				h.LeaseMoves = true
			case restored, quarantined:
				h.Boots = 2
				s.ChangeNode(h.Name, func(n *fake.Node) { n.UID, n.BootID = r.NewNodeUID, h.BootID() })
			}
		}
		s.ChangeMetal(isolated, func(h *policy.Host) { h.Annotations = map[string]string{"reboot.metal3.io/fenced": `{"mode":"hard"}`} })
		s.Host(confirmed).BMC.Fails = &bmc.Error{Kind: bmc.KindUnreachable, Op: "read power state", Err: errors.New("no answer")}
		s.Host(miswired).BMC.SetFault(fake.IgnoresOff, time.Now())
		s.RemoveNode(own) // what is stored tells that it is ours
		s.OnIsolate = func(n *fake.Node, r remediate.Run, _ remediate.Backup) {
			assert.False(t, s.Host(n.Name).On, "I1: run %s isolates %s, which is on", r.ID, n.Name)
			assert.True(t, w.proven(n.Name, time.Now()), "I1: run %s isolates %s without a new proof of off", r.ID, n.Name)
		}
	})
	w.outlet.Change(func(o *fake.Outlet) { o.On = false })
	w.of(own).ChangeEntry(func(h *bmc.Host) { h.PinnedUUID = uuidOf(12) })
	for _, name := range []string{quarantined, maintained, locked} {
		w.of(name).Hang()
	}
}

// silent is a host whose kernel hung before its run began.
func silent(s *fake.State, r remediate.Run) {
	s.Host(r.Target.Node).Hang(time.Time{})
	s.ChangeNode(r.Target.Node, func(n *fake.Node) { n.Ready, n.Since = "Unknown", r.Started.Add(-time.Minute) })
}

// off is a host that the run switched off, and whose Lease stands still since.
func off(t *testing.T, s *fake.State, r remediate.Run) {
	s.Host(r.Target.Node).Power(false, "the run")
	require.NotNil(t, r.OffLease, r.Target.Node)
	n, err := strconv.ParseUint(r.OffLease.ResourceVersion, 10, 64)
	require.NoError(t, err)
	s.Leases[r.Target.Node] = fake.Lease{Version: n, Renewed: r.OffLease.RenewTime, Duration: r.OffLease.Duration}
}

// checkStops checks what binds the engine at once, and that the refused account is left in
// peace until its time is over.
func checkStops(t *testing.T, w *world, d *daemon) {
	assert.Equal(t, []state.Hold{maintenance, quarantine}, unversioned(d.Holds(prod)))
	for _, c := range d.Status() {
		assert.True(t, c.Armed, c.Name)
		assert.Equal(t, c.Name == lab, c.Paused != "", c.Paused)
		assert.Len(t, c.Runs, map[string]int{prod: 6}[c.Name], c.Name)
	}
	until := refusedAccounts.Accounts[0].Until
	time.Sleep(time.Until(until.Add(-time.Second)))
	assert.Zero(t, w.asked(locked), "its account was refused by the BMC")
	time.Sleep(time.Minute)
	assert.NotZero(t, w.asked(locked))
}

// checkEnds checks how each open run of the version before ended.
func checkEnds(t *testing.T, w *world, d *daemon) {
	for host, want := range map[string]struct {
		run    string
		step   remediate.Step
		reason string
		offs   bool // an Off was sent by the new daemon
	}{
		isolated:  {isolatedRun, remediate.Done, "", false},
		deleting:  {deletingRun, remediate.Done, "", true},
		cutting:   {cuttingRun, remediate.Done, "", true},
		confirmed: {confirmedRun, remediate.Done, "", false},
		miswired:  {miswiredRun, remediate.Aborted, "OutletContradicted", false},
		lying:     {lyingRun, remediate.Held, "FalseOff", false},
	} {
		r := d.runOn(t, host)
		assert.Equal(t, want.run, r.ID, host)
		assert.Equal(t, want.step, r.Step, "%s: %s %s", host, r.Reason, r.Note)
		assert.Equal(t, want.reason, string(r.Reason), "%s: %s", host, r.Note)
		assert.Equal(t, want.offs, w.of(host).Count(bmc.CommandOff) > 0, "%s: %v", host, w.of(host).Commands())
		if r.Step == remediate.Done {
			checkHost(t, w, r)
		}
	}
	assert.True(t, w.outlet.On(), "On was owed to it")
	assert.NotContains(t, w.outlet.Commands(), bmc.CommandOff)
	w.prod.Do(func(s *fake.State) {
		assert.False(t, fake.Held(s.Metal[isolated]), "the annotation is taken off again")
	})
	assert.Equal(t, remediate.Done, d.runOn(t, locked).Step, "nothing else was against fencing it")
	assert.Empty(t, w.of(lying).Commands(), "it is frozen")
	taken, err := state.LoadSlots(t.Context(), d.store)
	require.NoError(t, err)
	assert.Empty(t, taken, "no run is in flight")
}

// checkHost checks that a host of a run that is Done works again, and that its Node has
// what the old one had.
func checkHost(t *testing.T, w *world, r remediate.Run) {
	host := r.Target.Node
	w.prod.Do(func(s *fake.State) {
		n := s.Nodes[host]
		require.NotNil(t, n, host)
		assert.True(t, s.Host(host).On, host)
		assert.Equal(t, "True", n.Ready, host)
		assert.NotEqual(t, r.Target.NodeUID, n.UID, "%s registered anew", host)
		assert.Equal(t, r.NewNodeUID, n.UID, host)
		assert.Equal(t, host+"-boot-2", n.BootID, "another boot than that of the old Node")
		assert.Equal(t, r.Target.SystemUUID, n.SystemUUID, host)
		assert.Equal(t, map[string]string{"hostname": host, "zone": "zone-a", "rack": "r1", "team": "of-" + host}, n.Labels)
		assert.Equal(t, []string{"dedicated=" + host + ":NoSchedule"}, n.Taints)
		assert.Equal(t, host == isolated, n.Cordoned, host)
	})
}

// checkRefusals checks what people are not given, and what was not fenced meanwhile.
func checkRefusals(t *testing.T, w *world, d *daemon) {
	for _, host := range []string{maintained, quarantined, own, handed, restored, forgiven} {
		assert.Empty(t, w.of(host).Commands(), host)
	}
	dry := func(host string) order.Order {
		o := by("ada (uid 1000)", host, "test")
		o.DryRun = true
		return o
	}
	inLab := dry("bench")
	inLab.Cluster = lab
	for o, want := range map[order.Order]reason.Code{
		dry(maintained): reason.Hold, dry(own): reason.OwnHost, inLab: reason.Paused, dry(handed): "", dry(forgiven): "",
	} {
		_, err := d.Fence(t.Context(), o)
		got, _ := errors.AsType[*reason.Refusal](err)
		if want == "" {
			assert.NoError(t, err, o.Node)
		} else if assert.NotNil(t, got, "%s: %v", o.Node, err) {
			assert.Equal(t, want, got.Reason, "%s: %s", o.Node, got.Message)
		}
	}
	x, err := d.Explain(t.Context(), prod, quarantined)
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(x.Gates, func(g reason.Gate) bool { return g.Reason == reason.Quarantined && !g.Pass }), "%+v", x.Gates)
	frozen := func(node string) string {
		x, err := d.Explain(t.Context(), prod, node)
		require.NoError(t, err)
		i := slices.IndexFunc(x.Gates, func(g reason.Gate) bool { return g.Name == "frozen" })
		require.GreaterOrEqual(t, i, 0)
		return x.Gates[i].Value
	}
	assert.Contains(t, frozen(lying), lyingRun)
	assert.Equal(t, "none", frozen(forgiven))
	again := by("ada (uid 1000)", lying, "test")
	again.Run = lyingRun
	_, err = d.Retry(t.Context(), again)
	got, _ := errors.AsType[*reason.Refusal](err)
	require.NotNil(t, got, "%v", err)
	assert.Equal(t, reason.Frozen, got.Reason)
}
