package engine_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// If a check changes while its target is probed, the run starts with what the check asks
// now.
func TestRunStartsAsTheCheckAsksNow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ownMachines()
		w.OnLook(func(looks int) {
			if looks == 1 {
				w.changeCheck(func(c *policy.Check) { c.Strategy = policy.DeleteMachines })
			}
		})
		e := running(t, w, store, nil)
		time.Sleep(untilOff)
		assert.Equal(t, remediate.DeleteMachine, only(t, e).Strategy)
		assert.Zero(t, w.Count(bmc.CommandOff))
	})
}

// counting is an inventory that counts who looks for a host.
type counting struct {
	hosts.Inventory
	finds atomic.Int64
}

func (c *counting) Find(ctx context.Context, cluster, node string) (bmc.Host, bool, error) {
	c.finds.Add(1)
	return c.Inventory.Find(ctx, cluster, node)
}

// A candidate that a gate without I/O refuses causes no inventory lookup, which would read
// its password: a file read may hang, and would stop the deciding goroutine.
func TestDecidingReadsNoPassword(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var x *counting
		e := running(t, w, store, func(o *engine.Options) { x = &counting{Inventory: o.Hosts}; o.Hosts = x })
		time.Sleep(2 * time.Second)
		accepted(t)(e.Hold(t.Context(), wire.Order{Node: "n-1", Actor: "root", Reason: "test"}))
		before := x.finds.Load()
		time.Sleep(5 * time.Minute)
		assert.Equal(t, before, x.finds.Load())
		assert.False(t, gate(t, e, reason.Hold).Pass)
	})
}

// Two checks that want the same host do not drop each other's probe for ever. // L4
func TestTwoChecksOnOneHostStartOneRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ownMachines()
		var first policy.Check
		w.Do(func(s *fake.State) { first = *s.Check })
		other := first.Key()
		first.Name = "all" // it is asked before the other
		w.OnLook(func(looks int) {
			switch looks {
			case 1:
				w.Do(func(s *fake.State) { s.ShowCheck(&first) })
			case 20:
				w.Do(func(s *fake.State) { s.DropCheck(&first) })
			}
		})
		e := running(t, w, store, nil)
		time.Sleep(untilOff)
		assert.Contains(t, []string{first.Key(), other}, only(t, e).Check, "the one whose probe has just ended")
		assert.Less(t, w.Looks(), 20)
	})
}

// If only the fresh Node shows that the host is a control-plane host, the run is a
// control-plane run. // I12
func TestFreshControlPlaneRoleIsTheRunsRole(t *testing.T) {
	role := func(f *run.Fresh) {
		if f.Node != nil {
			f.Node.ControlPlane = true
		}
	}
	for _, manual := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			w.changeCheck(func(c *policy.Check) { c.Paused = manual })
			e := running(t, w, store, func(o *engine.Options) {
				o.Clusters[0].Kube = lookingAt{w, role}
				o.Clusters[0].Rules.ExternalEtcd, o.Clusters[0].ControlPlaneIsolation = true, remediate.IsolateTaint
			})
			time.Sleep(untilOff)
			if manual {
				accepted(t)(e.Fence(t.Context(), byHand))
			}
			r := only(t, e)
			assert.True(t, r.ControlPlane)
			assert.Equal(t, remediate.IsolateTaint, r.Isolation, "its Node is an etcd member elsewhere")
		})
	}
}

// A Lease that is renewed shows a live Node, even if the clock of its host is far
// behind. // I4
func TestRenewedLeaseIsAliveWhateverItsClock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.setContested(remediate.Yes)
		w.SetLeaseMoving(true)
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		gate(t, e, reason.Contested)
		assert.False(t, gate(t, e, reason.NodeAlive).Pass)
		w.setContested(remediate.No)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
	})
}

// Machines of two API families may have the same name.
func TestMachineIsFoundInItsOwnAPIFamily(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		handOver(w)
		w.changeCheck(func(c *policy.Check) { c.StartupTimeout, c.MachineConditions = time.Minute, nil })
		w.RemoveNode() // it has never registered: a fresh look finds none, either
		other := policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-1", UID: "another", NodeName: "elsewhere"}
		w.Do(func(s *fake.State) { s.ChangeMachine("n-1", func(m *policy.Machine) { m.NodeName = "" }) })
		e := running(t, w, store, through(func(list []policy.Change) []policy.Change {
			return append(list, policy.Change{ID: policy.ObjectID{APIVersion: other.APIVersion, Kind: "Machine", Namespace: "ns", Name: "m-1"}, Value: &other})
		}))
		time.Sleep(2 * time.Minute)
		runs := e.Runs("c")
		require.NotEmpty(t, runs)
		assert.True(t, strings.HasPrefix(runs[0].Target.MachineAPI, "cluster.x-k8s.io/"))
	})
}

// The next probe does not try a refused account again, even if the target was healthy in
// between. An order to fence tries it.
func TestRefusedAccountOutlivesItsProbe(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, nil)
		w.FailReads(refusedAccount())
		time.Sleep(65 * time.Second)
		require.Equal(t, 1, w.Reads())
		w.Recover()
		time.Sleep(10 * time.Second)
		w.Hang()
		time.Sleep(3 * time.Minute)
		assert.Equal(t, 1, w.Reads())
		gate(t, e, "BMCAuth")
		refused(t, "BMCAuth")(e.Fence(t.Context(), byHand))
		assert.Equal(t, 2, w.Reads())
		time.Sleep(6 * time.Minute)
		assert.Greater(t, w.Reads(), 2, "it is asked again")
	})
}

// by gives n-1's BMC another driver.
func (w *world) by(d bmc.Driver) {
	w.ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].Driver = d })
}

// ipmitool and most agents cannot distinguish a wrong password from a dead BMC. So they
// are not probed every 30 s while the Node is unhealthy.
func TestProbesOfLowerAssuranceBackOff(t *testing.T) {
	for driver, most := range map[bmc.Driver]int{bmc.DriverBMCLib: 12, bmc.DriverIPMI: 1000} {
		scene(t, string(driver), func(t *testing.T, w *world, store *failingStore) {
			w.by(driver)
			e, stop := enrolled(t, w, store, nil)
			w.FailReads(noAnswer())
			before := w.Reads()
			time.Sleep(61*time.Second + 32*time.Second)
			assert.Equal(t, 2, w.Reads()-before, "a second one soon")
			time.Sleep(time.Hour)
			n := w.Reads() - before
			assert.LessOrEqual(t, n, most)
			assert.Greater(t, n, most/20)
			gate(t, e, "BMCUnreachable")
			if driver == bmc.DriverIPMI {
				stop()
				return
			}
			refused(t, "BMCUnreachable")(e.Fence(t.Context(), byHand))
			assert.Greater(t, w.Reads()-before, n, "a person has it asked")

			w.FailReads(nil)
			time.Sleep(11 * time.Minute)
			require.Len(t, e.Runs("c"), 1)
		})
	}
}

// If the health check finds that the BMC works again, the next probe does not wait.
func TestHealthCheckEndsTheProbeBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.by(bmc.DriverBMCLib)
		e, _ := enrolled(t, w, store, nil)
		w.FailReads(noAnswer())
		time.Sleep(40 * time.Minute)
		w.FailReads(nil)
		s := subject(t, e)
		e.Checked(t.Context(), hosts.Checked{Subject: s, Reading: bmc.Reading{State: bmc.On, At: time.Now()}})
		time.Sleep(32 * time.Second)
		assert.Len(t, e.Runs("c"), 1)
	})
}

func gatesOf(t *testing.T, e *engine.Engine, node string) map[string]reason.Gate {
	t.Helper()
	x := must.Do(e.Explain(t.Context(), "c", node))(t)
	byName := map[string]reason.Gate{}
	for _, g := range x.Gates {
		byName[g.Name] = g
	}
	return byName
}

// Before anything was read, explain says so, and does not call a BMC usable that nobody has asked.
func TestExplainSaysWhatWasNotChecked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Recover()
		e := running(t, w, store, nil)
		time.Sleep(5 * time.Second)
		gates := gatesOf(t, e, "n-1")
		for _, name := range []string{"host", "identity", "contested", "powerOwner", "nodeAlive"} {
			g := gates[name]
			assert.True(t, g.Pass && g.Unchecked, "%s: %+v", name, g)
			assert.Contains(t, g.Value, "not checked yet")
		}
		assert.False(t, gates["pause"].Unchecked)
	})
}

// Once a probe has read the target, nothing is unchecked. A probe whose BMC does not answer reads
// nothing else.
func TestExplainOfAProbedTarget(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.setContested(remediate.Yes)
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		gates := gatesOf(t, e, "n-1")
		assert.Equal(t, reason.Contested, gates["contested"].Reason)
		for name, g := range gates {
			assert.False(t, g.Unchecked, name)
		}
		w.FailReads(noAnswer())
		time.Sleep(2 * time.Minute)
		gates = gatesOf(t, e, "n-1")
		assert.Equal(t, reason.Code("BMCUnreachable"), gates["host"].Reason)
		assert.False(t, gates["host"].Unchecked)
		assert.True(t, gates["identity"].Unchecked)
		assert.True(t, gates["contested"].Unchecked)
	})
}

// explain of a host that was not probed agrees with the BMC health check, level by level.
func TestExplainAgreesWithTheHealthCheck(t *testing.T) {
	at := time.Date(2000, 1, 1, 0, 0, 4, 0, time.UTC)
	ok := func(level int) hosts.LastCheck {
		return hosts.LastCheck{Level: level, At: at, Power: bmc.On, Identity: guard.IdentityMatches, UUID: hostUUID}
	}
	failed := func(level int, code reason.Code) hosts.LastCheck {
		return hosts.LastCheck{Level: level, At: at, Reason: code, Problem: "the account is refused"}
	}
	other := ok(0)
	other.Identity, other.UUID = guard.IdentityDiffers, "4c4c4544-0042-3510-8054-ffffffffffff"
	unproven := ok(0)
	unproven.Identity, unproven.UUID = guard.IdentityUnproven, ""
	for name, tc := range map[string]struct {
		last           []hosts.LastCheck
		host, identity reason.Code
		unchecked      bool
		value          string
	}{
		"nothing is known":            {nil, "", "", true, "c/n-1: the BMC is not checked yet"},
		"not checked yet":             {[]hosts.LastCheck{{Level: 0}, {Level: 1}}, "", "", true, "c/n-1: the BMC is not checked yet"},
		"good":                        {[]hosts.LastCheck{ok(0), ok(1)}, "", "", false, "c/n-1: read On by the BMC health check at 2000-01-01T00:00:04Z"},
		"refused account":             {[]hosts.LastCheck{failed(0, "BMCAuth"), failed(1, "BMCUnreachable")}, "BMCAuth", "", true, "the account is refused (BMC health check at 2000-01-01T00:00:04Z)"},
		"the second level is left":    {[]hosts.LastCheck{failed(0, "BMCAuth"), ok(1)}, "", "", false, "c/n-1: read On by"},
		"the second is not checked":   {[]hosts.LastCheck{failed(0, "BMCAuth"), {Level: 1}}, "", "", true, "c/n-1: the BMC is not checked yet"},
		"another machine answers":     {[]hosts.LastCheck{other, ok(1)}, "", reason.IdentityMismatch, false, "c/n-1: read On"},
		"nothing proves the identity": {[]hosts.LastCheck{unproven, ok(1)}, "", reason.IdentityUnknown, false, "c/n-1: read On"},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			w.Recover()
			w.ChangeEntry(func(h *bmc.Host) {
				second := h.Levels[0].Devices[0]
				second.Endpoint.Host = "192.0.2.2"
				h.Levels = append(h.Levels, bmc.Level{Devices: []bmc.Device{second}})
			})
			e := running(t, w, store, func(o *engine.Options) {
				o.LastChecks = func(cluster, host string) []hosts.LastCheck {
					assert.Equal(t, "c c/n-1", cluster+" "+host)
					return tc.last
				}
			})
			time.Sleep(5 * time.Second)
			gates := gatesOf(t, e, "n-1")
			assert.Equal(t, tc.host, gates["host"].Reason)
			assert.Contains(t, gates["host"].Value, tc.value)
			assert.Equal(t, tc.identity, gates["identity"].Reason)
			assert.Equal(t, tc.unchecked, gates["identity"].Unchecked)
		})
	}
}

// What the health check knows is for people: a run begins on what its own probe reads.
func TestHealthCheckDecidesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, func(o *engine.Options) {
			o.LastChecks = func(string, string) []hosts.LastCheck {
				return []hosts.LastCheck{{At: time.Now(), Reason: "BMCAuth", Problem: "refused"}}
			}
		})
		time.Sleep(5 * time.Minute)
		assert.Len(t, e.Runs("c"), 1, "the probe reads for itself")
		assert.Empty(t, refusedNow(e))
	})
}

// What became of a deletion is not asked at once: other Machines may still have to be deleted.
func TestDeletedMachineIsLookedAtAMomentLater(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ofClusterAPI()
		var last, next time.Time // the last look before the Machine was handed over, and the next one
		w.OnLook(func(int) {
			switch {
			case w.HandedOver() == 0:
				last = time.Now()
			case next.IsZero():
				next = time.Now()
			}
		})
		e := running(t, w, store, nil)
		time.Sleep(5 * time.Minute)
		require.Equal(t, 1, w.HandedOver())
		assert.GreaterOrEqual(t, next.Sub(last), time.Second)
		assert.Equal(t, remediate.Reprovisioned, only(t, e).Step)
	})
}

// If the start of the run takes long, that look no longer counts, although an action may be done
// on it for longer: the run looks again. // I4
func TestLookThatAdmittedARunGrowsOld(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ofClusterAPI()
		e := running(t, w, store, slowStart(300*time.Millisecond, w.Recover))
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.HandedOver())
		assert.Equal(t, "Recovered", string(only(t, e).Reason))
	})
}

// What is known without a look counts at once, however young the look is. // I23
func TestPauseAfterTheLookThatAdmittedARun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.ofClusterAPI()
		started := make(chan *engine.Engine, 1)
		e := running(t, w, store, slowStart(time.Millisecond, func() {
			_, err := (<-started).Pause(t.Context(), byHand)
			assert.NoError(t, err)
		}))
		started <- e
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.HandedOver())
	})
}

// A host is looked at again before it is switched off, however young the look is that admitted
// the run. // I4
func TestHostIsLookedAtAgainBeforeItIsSwitchedOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, slowStart(time.Millisecond, w.Recover))
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		assert.Equal(t, "Recovered", string(only(t, e).Reason))
	})
}

// slowStart has the record of the start of the first run take a while, and does something first.
func slowStart(takes time.Duration, first func()) func(*engine.Options) {
	var once sync.Once
	return func(o *engine.Options) {
		o.Record = func(e event.Event) error {
			if e.Type == event.Started {
				once.Do(func() {
					first()
					time.Sleep(takes)
				})
			}
			return nil
		}
	}
}
