package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/fake"
)

// opened are the devices that runs, probes and people opened: address, then password.
type opened struct {
	mu   sync.Mutex
	list []string
}

func (x *opened) note(o *engine.Options) {
	inner := o.Open
	o.Open = func(d bmc.Device) (bmc.Power, error) {
		x.mu.Lock()
		x.list = append(x.list, d.String()+" "+d.Password.Reveal())
		x.mu.Unlock()
		return inner(d)
	}
}

func (x *opened) has(what string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Contains(x.list, what)
}

// has makes what the Secret of a BareMetalHost holds.
func (m metal) has(name, password string) {
	m.Do(func(s *fake.State) {
		s.Secrets["bmc-"+name] = fake.Account{User: "admin", Password: bmc.NewSecret(password)}
	})
}

// A pin names one Secret. If someone who may write a pinned BareMetalHost makes it name
// another host's Secret, that password is not sent. // I10
func TestPinnedHostIsNotSentAnothersPassword(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		m.set("h-2", func(*policy.Host) {})
		m.has("h-2", "another's")
		m.useOn("other-0", "h-2")
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e) // h-1 is pinned, and its tenant's BMC was there
		_, passwords, end := sweeping(t, w, e)
		time.Sleep(2 * time.Minute)
		m.set("h-1", func(h *policy.Host) { h.CredentialsName = "bmc-h-2" })
		time.Sleep(15 * time.Minute)
		assert.True(t, passwords.were("192.0.2.10", "hush"))
		assert.False(t, passwords.were("192.0.2.10", "another's"))
		assert.Equal(t, reason.SecretShared, subjectOf(t, e, "ns/h-1").Withheld.Reason)
		end()
	})
}

// The Secret of a pinned host stays reserved for it, even if no object names the Secret
// any longer. // I10
func TestSecretOfAPinnedHostStaysReserved(t *testing.T) {
	for name, change := range map[string]func(metal){
		"edited": func(m metal) { m.set("h-1", func(h *policy.Host) { h.CredentialsName = "other" }) },
		"gone":   func(m metal) { m.drop("h-1") },
	} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			const trap = "203.0.113.66"
			m := newMetal(w)
			w.SetReady("True")
			e := running(t, w, store, nil)
			time.Sleep(2 * time.Second)
			checkHealthy(t, e)
			_, passwords, end := sweeping(t, w, e)
			bait(m, "ipmi://"+trap)
			change(m)
			time.Sleep(15 * time.Minute)
			assert.Empty(t, passwords.at(trap))
			end()
		})
	}
}

// An open run continues with the Secret with which it started, or with one that belongs to
// no other host. // I10
func TestRunIsNotGivenAnothersPassword(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-2", func(*policy.Host) {})
		m.has("h-2", "another's")
		e, _, stop := start(t, w, store, nil)
		until(t, e, remediate.PowerOff)
		m.set("h-1", func(h *policy.Host) { h.CredentialsName = "bmc-h-2" })
		stop()
		var asked opened
		running(t, w, store, asked.note)
		time.Sleep(time.Minute)
		assert.False(t, asked.has("ipmi://192.0.2.10:623 another's"))
		m.set("h-1", func(h *policy.Host) { h.CredentialsName = "bmc-new" })
		m.has("new", "renamed")
		for range 3600 { // seconds of virtual time
			if asked.has("ipmi://192.0.2.10:623 renamed") {
				break
			}
			time.Sleep(time.Second)
		}
		assert.True(t, asked.has("ipmi://192.0.2.10:623 renamed"), "the host is to be brought back")
	})
}

// Who may write a BareMetalHost cannot have a run send the password to whoever answers. A run that began without verification, as
// the configuration allowed then, brings its host back. // I10
func TestRunKeepsTheVerificationOfTheCertificate(t *testing.T) {
	for name, allowed := range map[string]bool{"asked for during the run": false, "allowed when it began": true} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			m := newMetal(w)
			m.set("h-1", func(h *policy.Host) {
				h.Address, h.DisableCertificateVerification = "redfish://192.0.2.10/redfish/v1/Systems/1", allowed
			})
			e, _, stop := start(t, w, store, func(o *engine.Options) { o.Metal.Unverified = allowed })
			until(t, e, remediate.PowerOff)
			m.set("h-1", func(h *policy.Host) { h.DisableCertificateVerification = true })
			stop()
			var opened, unverified atomic.Bool
			running(t, w, store, func(o *engine.Options) {
				inner := o.Open
				o.Open = func(d bmc.Device) (bmc.Power, error) {
					opened.Store(true)
					if d.TLS.InsecureSkipVerify {
						unverified.Store(true)
					}
					return inner(d)
				}
			})
			time.Sleep(time.Minute)
			assert.True(t, opened.Load())
			assert.Equal(t, allowed, unverified.Load())
		})
	}
}

// A manual confirmation that a host is off reads no BMC to which no password may be sent.
// It is refused while such a BMC could contradict it. // I10, I26
func TestConfirmationSendsNoPassword(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.pauseCheck()
		m.set("h-2", func(h *policy.Host) { h.CredentialsName = "bmc-h-1" })
		m.useOn("other-0", "h-2")
		var asked opened
		e := running(t, w, store, asked.note)
		time.Sleep(2 * time.Second)
		require.Equal(t, reason.SecretShared, subjectOf(t, e, "ns/h-1").Withheld.Reason)
		refused(t, reason.SecretShared)(e.ConfirmOff(t.Context(), byHand))
		assert.Empty(t, asked.list)
		m.drop("h-2")
		time.Sleep(2 * time.Second)
		refused(t, reason.ConfirmedOffContradicted)(e.ConfirmOff(t.Context(), byHand))
	})
}

// A run that started on a manual confirmation, when no BMC of the host was known, uses no
// BMC that nobody has confirmed, and pins nothing. // I10, I26
func TestRunOnAConfirmationSendsNoPassword(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.pauseCheck()
		w.dead()
		m.set("h-1", func(h *policy.Host) { h.Address = "nonsense://x" })
		var asked opened
		e := running(t, w, store, asked.note)
		time.Sleep(2 * time.Second)
		accepted(t)(e.ConfirmOff(t.Context(), byHand))
		m.set("h-1", func(h *policy.Host) { h.Address = "redfish+http://203.0.113.66/redfish/v1/Systems/1" })
		time.Sleep(5 * time.Minute)
		assert.Empty(t, asked.list)
		assert.Empty(t, pinOf(t, store, "c/ns/h-1").Devices)
	})
}

// If bmcNetworks is narrowed while a host is off, the host is still brought back.
func TestNarrowerNetworksLeaveNoHostOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		m.set("h-1", func(h *policy.Host) { h.Address = "ipmi://127.0.0.1:6230" })
		e, _, stop := start(t, w, store, nil)
		until(t, e, remediate.PowerOff)
		stop()
		var refusing []string
		running(t, w, store, func(o *engine.Options) {
			o.Metal = hosts.MetalRules{Networks: &bmc.Networks{}}
			inner := o.Open
			o.Open = func(d bmc.Device) (bmc.Power, error) {
				if why := d.Networks.RefuseHost(d.Endpoint.Host); why != "" {
					refusing = append(refusing, why)
				}
				return inner(d)
			}
		})
		time.Sleep(time.Minute)
		assert.Empty(t, refusing)
	})
}

// wrongly counts the logins with a wrong password.
type wrongly struct {
	bmc.Power
	n *int
}

func (a wrongly) Read(context.Context) (bmc.Reading, error) {
	*a.n++
	return bmc.Reading{}, &bmc.Error{Kind: bmc.KindAuth, Op: "login"}
}

// Another name for the BMC of a known host must use the same account, or be enrolled: a
// wrong password could lock the account of the known host.
func TestNoOtherAccountAtAKnownHostsBMC(t *testing.T) {
	for password, code := range map[string]reason.Code{"wrong": reason.BMCShared, "hush": ""} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			m := newMetal(w)
			m.set("h-1", func(h *policy.Host) { h.Address = "redfish://192.0.2.10/redfish/v1/Systems/1" })
			w.SetReady("True")
			e := running(t, w, store, nil)
			time.Sleep(2 * time.Second)
			checkHealthy(t, e)
			m.set("h-bait", func(h *policy.Host) { h.Address = "redfish://192.0.2.10/redfish/v1/Systems/2" })
			m.has("h-bait", password)
			m.useOn("other-0", "h-bait")
			time.Sleep(2 * time.Second)
			if withheld := subjectOf(t, e, "ns/h-bait").Withheld; code == "" {
				require.Nil(t, withheld)
			} else {
				require.Equal(t, code, withheld.Reason)
			}
			n := 0
			actors := power.NewActors(func(d bmc.Device) (bmc.Power, error) {
				if d.Password.Reveal() == "wrong" {
					return wrongly{w.bmc(), &n}, nil
				}
				return w.bmc(), nil
			})
			s := sweep.New(sweep.Options{Engine: e, Open: actors.Patient(), Urgent: actors.Urgent(), LockOut: e.LockOut, Every: time.Minute,
				ReadTimeout: 5 * time.Second, Concurrency: sweep.DefaultConcurrency, OnEvent: func(event.Event) {}, OnLatency: func(bmc.Driver, time.Duration) {}})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			time.Sleep(time.Hour)
			cancel()
			require.NoError(t, <-done)
			time.Sleep(time.Minute)
			assert.Zero(t, n, "logins with a wrong password")
		})
	}
}

// A pinned BMC that now reports the UUID of another machine does not forbid to fence that
// machine. // I9
func TestPinnedBMCWithAForeignUUIDForbidsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		m := newMetal(w)
		w.SetReady("True")
		m.set("h-2", func(*policy.Host) {})
		m.useOn("other-0", "h-2")
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e)
		says := func(host, uuid string) {
			s := subjectOf(t, e, host)
			r := bmc.Reading{State: bmc.On, Identity: bmc.Identity{UUID: uuid}}
			e.Checked(t.Context(), hosts.Checked{Subject: s, At: time.Now(), Reading: r, Identity: e.Identify(t.Context(), s, 0, 0, r)})
		}
		says("ns/h-2", subjectOf(t, e, "ns/h-2").SystemUUID)
		require.NotEmpty(t, pinOf(t, store, "c/ns/h-2").Devices)
		says("ns/h-1", hostUUID)
		says("ns/h-2", hostUUID)
		assert.Empty(t, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-1")))
		assert.Equal(t, reason.DuplicateHost, e.Forbidden(t.Context(), subjectOf(t, e, "ns/h-2"))[0].Reason)
	})
}

// An entry of hosts.d whose device reports no identity leads to the BMC of another Node's
// BareMetalHost. The entry is refused: the BareMetalHost may be right. // I8, I9
func TestEntryWithoutIdentityStaysADuplicate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		host := w.Entry()
		m := newMetal(w)
		m.set("h-2", func(h *policy.Host) { h.Address = "ipmi://192.0.2.1" })
		m.useOn("other-0", "h-2")
		w.ChangeEntry(func(h *bmc.Host) { *h = host })
		w.by(bmc.DriverFenceAgent)
		e := running(t, w, store, nil)
		time.Sleep(2 * time.Second)
		notEnrolled(t, e, reason.DuplicateHost)
		time.Sleep(3 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Zero(t, w.Count(bmc.CommandOff))
	})
}

func refusedByHand(t *testing.T, e *engine.Engine, code reason.Code) {
	t.Helper()
	refused(t, code)(e.Fence(t.Context(), byHand))
	assert.False(t, gate(t, e, code).Pass, "and explain shows it")
}

// A Machine that cannot be read may be paused, and may be the Machine of this Node.
func TestUnreadableMachineIsNotTreatedAsAbsent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		policies := withPolicy(w, nodePolicy())
		unreadable := eachMachine(func(ch *policy.Change, m *policy.Machine) {
			if m.Name == "m-1" {
				ch.Value, ch.Err = nil, errors.New("spec.providerID is a number")
			}
		})
		e := running(t, w, store, func(o *engine.Options) { policies(o); unreadable(o) })
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		refusedByHand(t, e, reason.Undecodable)
		assert.Empty(t, w.Commands())
	})
}

// If the providerIDs differ, a Node with the same name is the Node of another host.
func TestNodeOfAnotherHostIsLeftAlone(t *testing.T) {
	otherProvider := func(list []policy.Change) []policy.Change {
		for i := range list {
			switch v := list[i].Value.(type) {
			case *policy.Machine:
				v.ProviderID = "k3s://a/" + v.NodeName
			case *policy.Node:
				v.ProviderID = "k3s://b/" + v.Name
			}
		}
		return list
	}
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, through(otherProvider))
		time.Sleep(2 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		refusedByHand(t, e, reason.NodeMismatch)
		assert.Empty(t, w.Commands())
	})
}

// silentAtFirst keeps a run from its first command until the test lets it go on.
func silentAtFirst(w *world) (answer func()) {
	w.OnLook(func(looks int) {
		if looks == 1 {
			w.FailReads(errors.New("no answer yet"))
		}
	})
	return func() { w.FailReads(nil) }
}

// The fresh Node and Machine must belong together, whatever the view shows. // I4
func TestFreshNodeOfAnotherHostDropsTheRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		answer := silentAtFirst(w)
		e := running(t, w, store, func(o *engine.Options) {
			o.Clusters[0].Kube = lookingAt{w, func(f *run.Fresh) {
				if w.Looks() > 1 && f.Node != nil && f.Machine != nil {
					f.Machine.ProviderID, f.Node.ProviderID = "k3s://a/n-1", "k3s://b/n-1"
				}
			}}
		})
		time.Sleep(65 * time.Second)
		answer()
		time.Sleep(5 * time.Second)
		r := stands(t, e, remediate.Aborted)
		assert.Contains(t, r.Note, "providerID")
		assert.Empty(t, w.Commands())
	})
}

// If a Machine claims a Node after the run of that Node began, the run is dropped: the
// Machine's rules apply.
func TestNewMachineOfTheNodeDropsItsRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		answer := silentAtFirst(w)
		w.dropMachines()
		e := running(t, w, store, withPolicy(w, nodePolicy()))
		time.Sleep(65 * time.Second)
		require.Len(t, e.Runs("c"), 1)
		w.Do(func(s *fake.State) {
			s.PutMachine(policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-1", UID: "m-m-1", NodeName: "n-1", Phase: "Running"})
		})
		time.Sleep(3 * time.Second)
		answer()
		time.Sleep(2 * time.Second)
		r := e.Runs("c")[len(e.Runs("c"))-1]
		assert.Equal(t, remediate.Aborted, r.Step)
		assert.Contains(t, r.Note, "Machine ns/m-1 has claimed the Node")
		assert.Empty(t, w.Commands())
	})
}

// writeLease has somebody write the Lease of n-1, with any time and duration.
func writeLease(w *world, renewed time.Time, duration time.Duration) {
	w.Do(func(s *fake.State) {
		s.Leases["n-1"] = fake.Lease{Version: s.Leases["n-1"].Version + 1, Renewed: renewed, Duration: duration}
	})
}

// longestLease is leaseDurationSeconds: 2147483647.
const longestLease = (1<<31 - 1) * time.Second

// No power is cut on a host of which nobody can wait until its kubelet has missed a renewal. A shorter
// duration, or no Lease, lets it be fenced. // I5
func TestTooLongLeaseIsRefusedBeforeTheFirstOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.Host("n-1").LeaseFor = longestLease })
		writeLease(w, time.Now().Add(-time.Minute), longestLease)
		e := running(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		g := gate(t, e, reason.LeaseTooLong)
		assert.False(t, g.Pass)
		assert.Contains(t, g.Value, "leaseDurationSeconds of the Node's Lease is 2147483647")
		refused(t, reason.LeaseTooLong)(e.Fence(t.Context(), byHand))
		writeLease(w, time.Now().Add(-time.Hour), 40*time.Second)
		time.Sleep(3 * time.Minute)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
	})
}

// A duration that is written once the Off was sent delays the isolation by half of the longest duration that
// fenced waits for, and no more. // I5, L1
func TestLeaseWrittenAfterTheOffDelaysNoLongerThanTheCap(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		write := sync.OnceFunc(func() { writeLease(w, time.Now(), longestLease) })
		w.OnLook(func(int) { // the first look after the Off
			if w.Count(bmc.CommandOff) > 0 {
				write()
			}
		})
		e := running(t, w, store, nil)
		time.Sleep(untilOff + times.LongestLease/4)
		require.Zero(t, w.Isolations())
		time.Sleep(times.LongestLease/4 + 20*time.Second)
		assert.Equal(t, 1, w.Isolations(), "%s: %s", only(t, e).Reason, only(t, e).Note)
	})
}

// A Lease that was renewed in the year 2999 is one that stands still: its Node is fenced as soon as fenced has seen it
// unchanged for a minute. // I4
func TestLeaseOfTheYear2999EscapesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		writeLease(w, time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), 40*time.Second)
		e := running(t, w, store, nil)
		time.Sleep(untilOff)
		assert.False(t, gate(t, e, reason.NodeAlive).Pass, "one observation does not tell")
		assert.Zero(t, w.Count(bmc.CommandOff))
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		assert.Equal(t, 1, w.Isolations())
	})
}
