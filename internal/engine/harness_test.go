package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/test/fake"
	"github.com/fenced/fenced/test/must"
)

// TestMain puts the state files of these tests into memory, where Linux has a file system for that and TMPDIR names no other.
// Nothing here shows what a disk does: the tests of boltstore do. To wait for one took a third of these tests' time.
func TestMain(m *testing.M) {
	if os.Getenv("TMPDIR") == "" {
		if dir, err := os.MkdirTemp("/dev/shm", "fenced-engine-"); err == nil {
			defer os.RemoveAll(dir)
			os.Setenv("TMPDIR", dir)
		}
	}
	m.Run()
}

// untilOff is when the hung host of a world has been sent its first Off: the check waits
// 60 s, then comes the probe, then the first look of the run.
const untilOff = 62 * time.Second

// failingStore is a store that refuses every write while it is told to.
type failingStore struct {
	state.Store
	changed chan struct{} // by another instance
	mu      sync.Mutex
	fail    bool
}

func (s *failingStore) Watch(context.Context) <-chan struct{} { return s.changed }

// syncChanges makes the engine take in what another instance has written.
func (s *failingStore) syncChanges() {
	s.changed <- struct{}{}
	time.Sleep(6 * time.Second)
}

func (s *failingStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail {
		return 0, errors.New("disk full")
	}
	return s.Store.Put(ctx, r)
}

func (s *failingStore) set(fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// start runs an engine over the world until the test's bubble ends it.
func start(t *testing.T, w *world, store state.Store, change func(*engine.Options)) (*engine.Engine, *event.Stream, func()) {
	t.Helper()
	return startBeating(t, w, store, change, func() {})
}

// running is start for a test that only asks the engine.
func running(t *testing.T, w *world, store state.Store, change func(*engine.Options)) *engine.Engine {
	t.Helper()
	e, _, _ := start(t, w, store, change)
	return e
}

// startBeating is start for a test that listens to the beats for the watchdog.
func startBeating(t *testing.T, w *world, store state.Store, change func(*engine.Options), beat func()) (*engine.Engine, *event.Stream, func()) {
	t.Helper()
	events := event.NewStream()
	opt := engine.Options{
		Store: store, Hosts: w, Open: func(bmc.Device) (bmc.Power, error) { return w.bmc(), nil }, Events: events,
		Clusters: []engine.ClusterOptions{{Name: "c", Mode: guard.ModeEvaluate, Isolation: remediate.IsolateDelete, IdentityMode: "required", Watch: w.Watch(), Kube: w,
			Rules: policy.Rules{Namespaces: []string{"ns"}}}},
		Guards: guard.Limits{ViewMaxAge: time.Minute, ClockSkewMax: time.Minute, MaxInFlight: 5, MaxInFlightPercent: 100,
			MaxInFlightPerZone: 1, ZoneBreakerPercent: 55, ZoneBreakerMin: 3, MaxFencesPerDay: 10, MaxInFlightTotal: 20},
		Run: remediate.Limits{OffDeadline: time.Minute, APITimeout: 2 * time.Minute, PodsGoneTimeout: time.Minute, OnDeadline: 3 * time.Minute,
			RestoreTimeout: 10 * time.Minute, RunTimeout: 2 * time.Hour, MinPowerInterval: time.Minute, MaxAttempts: 3, PowerOnFoundOff: true,
			ReadyTimeout: 10 * time.Minute},
		Power:     power.ReadTiming{ReadTimeout: 5 * time.Second, OffReadSpacing: 3 * time.Second},
		Suspended: new(lid).suspended, // not when the machine of the test is: its time is another one, and to ask the kernel took a quarter of the time of these tests
	}
	opt.Escalation = asks(&opt, nil)
	if change != nil {
		change(&opt)
	}
	e := must.Do(engine.New(t.Context(), opt))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, beat) }()
	ticking := make(chan struct{})
	go func() { w.Run(ctx); close(ticking) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-done)
			<-ticking
		})
	}
	t.Cleanup(stop)
	return e, events, stop
}

func openStore(t *testing.T, dir string) state.Store {
	t.Helper()
	return must.Do(boltstore.Open(filepath.Join(dir, "state.db")))(t)
}

// eventsOf are the events so far that a test asks for.
func eventsOf(t *testing.T, s *event.Stream, keep func(event.Event) bool) []event.Event {
	t.Helper()
	all := must.Do(s.After(t.Context(), 0))(t)
	return slices.DeleteFunc(all, func(ev event.Event) bool { return !keep(ev) })
}

const hostUUID = "4c4c4544-0042-3510-8054-b4c04f4d3132"

// never is longer than any test.
const never = 1000 * time.Hour

var rack = map[string]string{"rack": "r1"}

// world is the cluster of most tests: n-1, which has just fallen silent, with an entry
// in hosts.d, and three Nodes beside it that are well and that nobody can switch.
type world struct {
	*fake.Cluster
	*fake.Handle // of n-1
}

func newWorld() *world {
	c := fake.New("c")
	w := &world{c, c.Handle("n-1")}
	w.addHost("n-1", "m-1", hostUUID)
	for i := range 3 {
		w.addOther(i)
	}
	c.Do(func(s *fake.State) {
		s.Contender = "someone"
		s.Check = &policy.Check{
			Kind: policy.MachineHealthCheckKind, APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "workers",
			Selector: labels.Everything(), Strategy: policy.PowerCycleHosts,
			Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}},
		}
		s.ShowCheck(s.Check)
	})
	w.ChangeEntry(func(h *bmc.Host) {
		*h = bmc.Host{Name: "c/n-1", IdentityMode: "required", Source: "hosts.d", Levels: []bmc.Level{{Devices: []bmc.Device{{
			Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "192.0.2.1", Port: 623}}}}}}
	})
	w.Hang()
	return w
}

func (w *world) addHost(node, machine, uuid string) {
	w.Do(func(s *fake.State) {
		s.AddHost(fake.Host{Name: node, UUID: uuid, Owned: fake.Owned{Labels: rack}, StartsWithMains: true},
			policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: machine, UID: "m-" + machine, Phase: "Running", ClusterName: "c"})
	})
}

func (w *world) addOther(i int) {
	name := fmt.Sprint("other-", i)
	w.addHost(name, name, fmt.Sprintf("4c4c4544-0042-3510-8054-b4c04f4d40%02d", i))
}

// bmc is the client of n-1's BMC, wherever it is said to be.
func (w *world) bmc() bmc.Power { return w.BMC("n-1") }

func (w *world) changeCheck(change func(*policy.Check)) {
	w.Do(func(s *fake.State) { s.ChangeCheck(change) })
}

// pauseCheck leaves the cluster to people.
func (w *world) pauseCheck() { w.changeCheck(func(c *policy.Check) { c.Paused = true }) }

func (w *world) eachMachine(change func(*policy.Machine)) {
	w.Do(func(s *fake.State) {
		for _, h := range s.Hosts {
			s.ChangeMachine(h.Name, change)
		}
	})
}

// dropMachines is a cluster without a machine API.
func (w *world) dropMachines() {
	w.Do(func(s *fake.State) {
		for _, h := range s.Hosts {
			s.RemoveMachine(h.Name)
		}
	})
}

func (w *world) ownMachines() {
	w.eachMachine(func(m *policy.Machine) { m.ControllerOwner = policy.Owner{Kind: "MachineSet", Name: "s", UID: "u"} })
}

// ofClusterAPI makes the Machines and the check those of the Cluster API, by which
// Machines are handed over to their owners.
func (w *world) ofClusterAPI() {
	w.ownMachines()
	w.eachMachine(func(m *policy.Machine) { m.APIVersion = policy.ClusterAPIV1Beta2 })
	w.Do(func(s *fake.State) { s.SetOwner(policy.ClusterAPIV1Beta2) })
	w.changeCheck(func(c *policy.Check) {
		c.APIVersion, c.ClusterName, c.Strategy = policy.ClusterAPIV1Beta2, "c", policy.MarkOwners
	})
}

// setOthersDown has one of the other Nodes be Unknown for ever, or not.
func (w *world) setOthersDown(down bool) {
	if other := w.Cluster.Handle("other-0"); down {
		w.Do(func(s *fake.State) { s.Host("other-0").Kernel = fake.Dead })
		other.SetReadySince("Unknown", time.Time{})
	} else {
		other.Recover()
	}
}

// duplicateUUID has another Node tell the UUID of n-1's host.
func (w *world) duplicateUUID() {
	w.Do(func(s *fake.State) { s.ChangeNode("other-0", func(n *fake.Node) { n.SystemUUID = hostUUID }) })
}

func (w *world) setContested(a remediate.Answer) { w.Do(func(s *fake.State) { s.Contested = a }) }
func (w *world) setUnsynced(unsynced bool)       { w.Do(func(s *fake.State) { s.Unsynced = unsynced }) }
func (w *world) takeAPIDown()                    { w.Do((*fake.State).TakeDown) }
func (w *world) bringAPIUp()                     { w.Do((*fake.State).BringUp) }

// setForeignHolder has another installation hold the Lease fenced; "" ends that.
func (w *world) setForeignHolder(foreign string) {
	w.Do(func(s *fake.State) { s.Fenced.Foreign = foreign })
}

// failAnnouncements has the API server refuse the Lease fenced; nil ends that.
func (w *world) failAnnouncements(err error) { w.Do(func(s *fake.State) { s.Fenced.Fails = err }) }

// noAnswer is the error of a request to a BMC or an outlet that is silent.
func noAnswer() error {
	return &bmc.Error{Kind: bmc.KindUnreachable, Op: "read power state", Addr: "192.0.2.1", Err: errors.New("no answer")}
}

func refusedAccount() error {
	return &bmc.Error{Kind: bmc.KindAuth, Op: "open session", Err: errors.New("refused")}
}

// dead takes the mains from n-1's host: nothing answers any more.
func (w *world) dead() {
	w.Do(func(s *fake.State) {
		h := s.Host("n-1")
		h.Power(false, "mains")
		h.BMC.Fails = noAnswer()
	})
}

// accepted requires that an order is carried out, and returns what it says.
func accepted(t *testing.T) func(order.Outcome, error) order.Outcome {
	return func(out order.Outcome, err error) order.Outcome {
		t.Helper()
		require.NoError(t, err)
		return out
	}
}

// refused requires that an order is refused for a reason, and returns the message.
func refused(t *testing.T, code reason.Code) func(order.Outcome, error) string {
	return func(_ order.Outcome, err error) string {
		t.Helper()
		refusedFor(t, err, code)
		return err.Error()
	}
}

func refusedFor(t *testing.T, err error, code reason.Code) {
	t.Helper()
	var refusal *reason.Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, code, refusal.Reason, refusal.Message)
}

// enroll has a person enroll n-1's devices.
func enroll(t *testing.T, e *engine.Engine) hosts.Enrollment {
	t.Helper()
	return must.Do(e.Enroll(t.Context(), byHand))(t)
}

func notEnrolled(t *testing.T, e *engine.Engine, code reason.Code) {
	t.Helper()
	_, err := e.Enroll(t.Context(), byHand)
	refusedFor(t, err, code)
}

func subject(t *testing.T, e *engine.Engine) hosts.Subject {
	t.Helper()
	return must.Do(e.SubjectOf(t.Context(), "c", "n-1"))(t)
}

func explained(t *testing.T, e *engine.Engine) admit.Explanation {
	t.Helper()
	return must.Do(e.Explain(t.Context(), "c", "n-1"))(t)
}
