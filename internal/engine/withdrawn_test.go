package engine_test

import (
	"fmt"
	"net/netip"
	"sync"
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
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// Whoever asked for a run stops asking while its host boots. The host is not cut again and its
// Machine stays. When the host was mended, it gets its labels back. // I4, I14
func TestNobodyAsksForAnotherAttempt(t *testing.T) {
	disarm := func(t *testing.T, _ *world, e *engine.Engine) {
		must.Do(e.Arming.Disarm(t.Context(), byHand))(t)
	}
	armed := func(w *world) func(*engine.Options) {
		return func(o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve }
	}
	checked := func(*world) func(*engine.Options) { return func(*engine.Options) {} }
	cases := map[string]struct {
		setUp func(w *world) func(*engine.Options)
		stops func(t *testing.T, w *world, e *engine.Engine)
	}{
		"the request is given up": {responding, func(_ *testing.T, w *world, _ *engine.Engine) {
			w.Do(func(s *fake.State) { s.ChangeRequest("m-1", func(q *policy.Request) { q.TimedOut = time.Now() }) })
		}},
		"the check is paused": {checked, func(_ *testing.T, w *world, _ *engine.Engine) { w.pauseCheck() }},
		"the check is deleted": {checked, func(_ *testing.T, w *world, _ *engine.Engine) {
			w.Do(func(s *fake.State) { s.DropCheck(s.Check) })
		}},
		"the cluster is disarmed": {armed, disarm},
	}
	for name, c := range cases {
		for _, attempts := range []int{1, 3} {
			scene(t, fmt.Sprint(name, ", ", attempts), func(t *testing.T, w *world, store *failingStore) {
				ask(w, nil)
				w.ownMachines()
				w.SetBootTime(never)
				e := running(t, w, store, func(o *engine.Options) {
					c.setUp(w)(o)
					waiting(o)
					o.Run.MaxAttempts, o.Run.ReadyTimeout, o.Clusters[0].Reprovision = attempts, 2*time.Minute, true
				})
				if o := e.Status()[0]; o.Mode == guard.ModeObserve {
					time.Sleep(10 * time.Second) // until it owns the cluster
					must.Do(e.Arming.Arm(t.Context(), byHand))(t)
				}
				until(t, e, remediate.AwaitNode)
				c.stops(t, w, e)
				time.Sleep(90 * time.Minute)
				stands(t, e, remediate.Waiting, reason.Withdrawn)
				assert.Equal(t, 1, w.Count(bmc.CommandOff), "power is not cut again")
				assert.True(t, w.On())
				assert.Empty(t, w.Deprovisioned())
				q, _ := asked(w)
				assert.True(t, q == nil || !q.Deleting, "nothing keeps the request")

				w.SetBootTime(time.Minute)
				w.Do(func(s *fake.State) { // the repair
					s.Host("n-1").Power(false, "hand")
					s.Host("n-1").Power(true, "hand")
				})
				until(t, e, remediate.Done)
				assert.True(t, w.Restored())
			})
		}
	}
}

// While the order to arm cannot be read, nobody knows that it was withdrawn: the run does not
// end for that, and goes on when it can be read. // I4, I20
func TestUnreadableArmingWithdrawsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		armed := func(o *engine.Options) {
			o.Clusters[0].Mode = guard.ModeObserve
			o.Run.RetryInterval = time.Minute
		}
		e, _, stop := start(t, w, store, armed)
		time.Sleep(10 * time.Second)
		must.Do(e.Arming.Arm(t.Context(), byHand))(t)
		r := until(t, e, remediate.Waiting)
		stop()
		good := must.Do(store.Get(t.Context(), state.KindCluster, "c"))(t)
		spoil(t, store, state.Record{Kind: state.KindCluster, Key: "c"})
		w.SetFault(fake.NoFault)

		e = running(t, w, store, armed)
		time.Sleep(30 * time.Minute)
		now := stands(t, e, remediate.Waiting)
		assert.Equal(t, r.Reason, now.Reason)
		bad := must.Do(store.Get(t.Context(), state.KindCluster, "c"))(t)
		good.Version = bad.Version
		must.Do(store.Put(t.Context(), good))(t)
		store.syncChanges()
		until(t, e, remediate.Done)
	})
}

// A run whose attempts are used up tries again while its check asks; not while that is paused.
func TestPausedCheckKeepsARestingRunFromPower(t *testing.T) { // I4, L5
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetBootTime(never)
		e := running(t, w, store, func(o *engine.Options) {
			waiting(o)
			o.Run.MaxAttempts, o.Run.ReadyTimeout = 1, 2*time.Minute
		})
		r := until(t, e, remediate.Waiting)
		require.Equal(t, reason.AttemptsExhausted, r.Reason)
		w.pauseCheck()
		time.Sleep(2 * time.Hour)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.changeCheck(func(c *policy.Check) { c.Paused = false })
		time.Sleep(3 * time.Hour)
		assert.Greater(t, w.Count(bmc.CommandOff), 1, "it asks again")
	})
}

// A run that waits before the isolation ends once its host is On and its request is gone: the
// finalizer does not wait for the run, and the run not for the request. // L1
func TestDeletedRequestEndsItsWaitingRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		e := running(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			waiting(o)
		})
		until(t, e, remediate.PowerOff)
		w.FailReads(noAnswer())
		require.True(t, until(t, e, remediate.Waiting).Intervened)
		w.Do(func(s *fake.State) { s.Withdraw("m-1") })
		time.Sleep(10 * time.Minute)
		q, _ := asked(w)
		require.NotNil(t, q, "it is held while nobody knows whether the host is on")
		w.SetBootTime(never) // the Node does not become Ready
		w.FailReads(nil)
		time.Sleep(10 * time.Minute)
		stands(t, e, remediate.Aborted, reason.Withdrawn)
		assert.True(t, w.On())
		assert.Zero(t, w.Isolations())
		q, _ = asked(w)
		assert.Nil(t, q)
	})
}

// The check deletes the request of a run that waits before the isolation, and makes another one. The
// run ends, and the new request has a run of its own. // L1
func TestNewRequestHasARunOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		e := running(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			waiting(o)
		})
		until(t, e, remediate.PowerOff)
		w.FailReads(noAnswer())
		require.True(t, until(t, e, remediate.Waiting).Intervened)
		w.Do(func(s *fake.State) {
			q := s.Asked["m-1"]
			s.Withdraw("m-1")
			s.Ask("m-1-again", func(again *policy.Request) { again.Owners = q.Owners })
		})
		w.SetBootTime(never) // the Node does not become Ready
		w.FailReads(nil)
		time.Sleep(30 * time.Minute)
		ended := map[string]bool{}
		for _, r := range e.Runs("c") {
			ended[r.Request.Name] = r.Step == remediate.Aborted
		}
		assert.Equal(t, map[string]bool{"m-1": true, "m-1-again": false}, ended)
	})
}

// An order to fence by hand is not carried out hours later on a host that works again, nor does
// it waive gates for fenced's own retry. // I4
func TestOldOrderIsNotTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e := running(t, w, store, waiting)
		time.Sleep(10 * time.Second)
		w.SetFault(fake.IgnoresOff)
		accepted(t)(e.Fence(t.Context(), byHand))
		time.Sleep(2 * time.Second)
		require.NotZero(t, w.Count(bmc.CommandOff))
		w.FailReads(noAnswer())
		until(t, e, remediate.Waiting)
		time.Sleep(6 * time.Hour)
		sent := w.Count(bmc.CommandOff)
		w.FailReads(nil)
		w.SetFault(fake.NoFault)
		time.Sleep(time.Hour)
		assert.Equal(t, sent, w.Count(bmc.CommandOff))
		assert.Equal(t, remediate.Aborted, only(t, e).Step)
		assert.True(t, w.On())
	})
}

// A run of a request that has not touched its host ends with the time of the request. Only then
// is the request told that it failed: no second remediator begins beside the run.
func TestRequestFailsOnlyWhenItsRunHasEnded(t *testing.T) {
	late := func(s *fake.State) {
		s.ChangeRequest("m-1", func(q *policy.Request) { q.Created, q.Power.Timeout = time.Now().Add(-time.Hour), time.Minute })
	}
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		w.OnLook(func(looks int) {
			if looks == 2 { // the first of the run, after that of the probe
				w.Do(late)
			}
		})
		e := running(t, w, store, responding(w))
		time.Sleep(2 * time.Minute)
		assert.Equal(t, remediate.Aborted, only(t, e).Step)
		assert.Empty(t, w.Commands())
		_, told := asked(w)
		assert.Equal(t, request.Failed, told.Phase)
	})
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		ask(w, nil)
		e := running(t, w, store, func(o *engine.Options) { responding(w)(o); waiting(o) })
		until(t, e, remediate.PowerOff)
		w.FailReads(noAnswer())
		until(t, e, remediate.Waiting)
		w.SetBootTime(never)
		w.Do(late)
		time.Sleep(5 * time.Minute)
		_, told := asked(w)
		assert.Equal(t, request.Running, told.Phase, "its host may be off")
		w.FailReads(nil)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Aborted, only(t, e).Step)
		assert.True(t, w.On())
		_, told = asked(w)
		assert.Equal(t, request.Failed, told.Phase)
	})
}

// A disarm while the Off is recorded binds that Off. // I4
func TestDisarmDuringTheRecordPreventsOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		var once sync.Once
		recorded := make(chan struct{})
		e := running(t, w, store, func(o *engine.Options) {
			o.Clusters[0].Mode = guard.ModeObserve
			o.Record = func(ev event.Event) error {
				if ev.Action == remediate.SendOff {
					once.Do(func() { close(recorded); time.Sleep(time.Second) })
				}
				return nil
			}
		})
		time.Sleep(10 * time.Second) // until it owns the cluster
		must.Do(e.Arming.Arm(t.Context(), byHand))(t)
		<-recorded
		must.Do(e.Arming.Disarm(t.Context(), byHand))(t)
		time.Sleep(5 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		assert.Equal(t, remediate.Aborted, only(t, e).Step)
	})
}

// bait is a BareMetalHost that names the Secret of h-1 and leads to an address of a
// tenant's choice. The tenant may write a Machine that names it, too.
func bait(m metal, address string) {
	m.set("h-bait", func(h *policy.Host) { h.Address, h.CredentialsName = address, "bmc-h-1" })
	m.useOn("other-0", "h-bait")
}

// No password is sent for a BareMetalHost that only names the Secret of another
// host. // I10
func TestPasswordOfAnothersSecretIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const trap = "203.0.113.66"
		m := newMetal(w)
		w.SetReady("True")
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e) // h-1 is pinned
		s, passwords, end := sweeping(t, w, e)
		bait(m, "ipmi://"+trap)
		time.Sleep(15 * time.Minute)
		assert.Empty(t, passwords.at(trap))
		assert.Equal(t, "hush", passwords.at("192.0.2.10"), "h-1 is asked as before")
		list := e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-bait"))
		require.Len(t, list, 1)
		assert.Equal(t, reason.SecretShared, list[0].Reason)
		assert.Empty(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-1")))
		_, err := s.Test(t.Context(), "c", "other-0")
		refusedFor(t, err, reason.SecretShared)
		refused(t, reason.SecretShared)(e.Fence(t.Context(), wire.Order{Node: "other-0", Actor: "root", Reason: "test"}))
		assert.Empty(t, passwords.at(trap))
		end()
	})
}

// If many hosts share one Secret, a person confirms for each host that it is right.
func TestSharedSecretIsUsedOnceEnrolled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		bait(m, "ipmi://192.0.2.77")
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		assert.Equal(t, reason.SecretShared, subjectOf(t, e, "ns/h-1").Withheld.Reason, "nobody knows yet whose it is")
		enroll(t, e)
		assert.Nil(t, subjectOf(t, e, "ns/h-1").Withheld)
		assert.Equal(t, reason.SecretShared, subjectOf(t, e, "ns/h-bait").Withheld.Reason)
	})
}

// fenced does not read the BMC of a BareMetalHost that no Machine names.
func TestHostWithoutAMachineIsNotRead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		m.set("h-2", func(h *policy.Host) { h.ConsumerRef = "ns/m-1" }) // it says so, and m-1 names h-1
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		_, passwords, end := sweeping(t, w, e)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, passwords.at("192.0.2.11"))
		assert.Equal(t, "hush", passwords.at("192.0.2.10"))
		end()
	})
}

// These settings only the configuration can allow.
func TestBareMetalHostMayNotSayEverything(t *testing.T) {
	for name, c := range map[string]struct {
		says  func(*policy.Host)
		allow hosts.MetalRules
	}{
		"loopback": {
			func(h *policy.Host) { h.Address = "ipmi://127.0.0.1:6230" },
			hosts.MetalRules{Networks: &bmc.Networks{Listed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}},
		},
		"another network": {
			func(h *policy.Host) { h.Address = "ipmi://198.51.100.7" },
			hosts.MetalRules{Networks: &bmc.Networks{Listed: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}},
		},
		"plain HTTP": {
			func(h *policy.Host) { h.Address = "redfish+http://192.0.2.10/redfish/v1/Systems/1" },
			hosts.MetalRules{PlainHTTP: true},
		},
		"no certificate": {
			func(h *policy.Host) {
				h.Address, h.DisableCertificateVerification = "redfish://192.0.2.10/redfish/v1/Systems/1", true
			},
			hosts.MetalRules{Unverified: true},
		},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			m := newMetal(w)
			m.set("h-1", c.says)
			listed := netip.MustParsePrefix("192.0.2.0/24")
			rules := hosts.MetalRules{Networks: &bmc.Networks{Listed: []netip.Prefix{listed}}}
			e, _, stop := start(t, w, store, func(o *engine.Options) { o.Metal = rules })
			time.Sleep(2 * time.Minute)
			assert.Empty(t, e.Runs("c"))
			gate(t, e, reason.InvalidHost)
			assert.Equal(t, reason.InvalidHost, subjectOf(t, e, "ns/h-1").Withheld.Reason)
			notEnrolled(t, e, reason.InvalidHost)
			assert.Zero(t, w.Reads())
			assert.Zero(t, m.secretReads(), "not even its Secret is read for that")
			stop()
			e = running(t, w, store, func(o *engine.Options) { o.Metal = c.allow })
			time.Sleep(2 * time.Minute)
			assert.NotEmpty(t, e.Runs("c"))
		})
	}
}

// A BareMetalHost with the same address as an entry of hosts.d, or as a pinned host, does
// not prevent fencing of that one. // I9
func TestForeignHostForbidsNothing(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *world, *failingStore) metal{
		"an entry of hosts.d": func(_ *testing.T, w *world, _ *failingStore) metal {
			host := w.Entry()
			m := newMetal(w)
			w.ChangeEntry(func(h *bmc.Host) { *h = host; h.Levels[0].Devices[0].Endpoint.Host = "192.0.2.10" })
			return m
		},
		"a pinned one": func(t *testing.T, w *world, store *failingStore) metal {
			m := newMetal(w)
			w.SetReady("True")
			e, _, stop := start(t, w, store, nil)
			time.Sleep(2 * time.Second)
			checkHealthy(t, e)
			stop()
			w.Hang()
			return m
		},
		"an enrolled one": func(t *testing.T, w *world, store *failingStore) metal {
			m := newMetal(w)
			e, _, stop := start(t, w, store, nil)
			time.Sleep(2 * time.Second)
			enroll(t, e)
			stop()
			return m
		},
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			m := begin(t, w, store)
			m.set("h-bait", func(h *policy.Host) { h.Address = "redfish://192.0.2.10/redfish/v1/Systems/1" })
			m.Do(func(s *fake.State) {
				s.Secrets["bmc-h-bait"] = fake.Account{User: "admin", Password: bmc.NewSecret("wrong")}
			})
			m.useOn("other-0", "h-bait")
			e := running(t, w, store, nil)
			time.Sleep(2 * time.Second)
			_, passwords, end := sweeping(t, w, e)
			time.Sleep(2 * time.Minute)
			assert.False(t, passwords.were("192.0.2.10", "wrong"), "it would lock the account of the other")
			list := e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-bait"))
			require.Len(t, list, 1)
			assert.Equal(t, reason.DuplicateHost, list[0].Reason)
			require.NotEmpty(t, e.Runs("c"))
			assert.Equal(t, "n-1", e.Runs("c")[0].Target.Node)
			end()
		})
	}
}

// If both are known, both are refused, as before. // I9
func TestTwoKnownHostsAreBothRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.10:623" })
		m.useOn("other-0", "h-2")
		d := bmc.Device{Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "192.0.2.10", Port: 623}}
		for _, host := range []string{"c/ns/h-1", "c/ns/h-2"} {
			must.Do(state.SavePin(t.Context(), store, state.Pin{Host: host, Devices: d.Key(), Choice: d.Fingerprint(), Address: d.String()}))(t)
		}
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		for _, key := range []string{"ns/h-1", "ns/h-2"} {
			assert.Equal(t, reason.DuplicateHost, subjectOf(t, e, key).Withheld.Reason, key)
		}
		notEnrolled(t, e, reason.DuplicateHost)
	})
}

// The same MAC address on two hosts is reported, and forbids nothing: status may hold old
// ones.
func TestSameMACsAreOnlyReported(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-1", func(h *policy.Host) { h.MACs = []string{"00-1B-21-00-00-01"} })
		m.set("h-2", func(h *policy.Host) { h.MACs = []string{"00:1b:21:00:00:01"} })
		m.useOn("other-0", "h-2")
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, e.Runs("c"))
		s := subjectOf(t, e, "ns/h-1")
		assert.Contains(t, s.SameMACs, "c/ns/h-2")
		assert.Contains(t, s.SameMACs, "00:1b:21:00:00:01")
		assert.Empty(t, e.Forbidden(t.Context(), s))
	})
}
