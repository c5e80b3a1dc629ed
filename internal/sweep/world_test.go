package sweep

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/test/must"
	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

const (
	every       = time.Minute
	readTimeout = 5 * time.Second
)

// world is an inventory, its BMCs and what the sweep made of them.
type world struct {
	mu       sync.Mutex
	subjects []hosts.Subject
	machines map[string]*machine // by service
	events   []event.Event
	checked  []hosts.Checked
	measured int
	inFlight int
	most     int // looks in flight, at the peak
	sweep    *Sweep
	actors   *power.Actors
	lockOut  *power.LockOut
	urgent   int    // devices opened for people
	frozen   string // a node
	twin     string // a node
}

// machine is a BMC and what is wrong with it.
type machine struct {
	uuid        string
	err         error
	hangs       bool
	takes       time.Duration
	fault       string
	description bmc.Description
	tells       time.Duration // what a description takes
	weak        []bmc.Finding
	auditErr    error

	reads             []time.Time
	described, audits int
	open, busy, clash int
	passwords         []string
}

func newWorld() *world { return &world{machines: map[string]*machine{}} }

// host adds a host with one BMC whose name ends in its number.
func (w *world) host(n int) *machine {
	return w.device(n, bmc.Device{Driver: bmc.DriverIPMI, Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: fmt.Sprintf("bmc-%d", n), Port: 623},
		Username: "fence", Password: bmc.NewSecret("a long random one"), PasswordFrom: "file /etc/fenced/bmc"})
}

// device adds a host with one device.
func (w *world) device(n int, d bmc.Device) *machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := fmt.Sprintf("n-%d", n)
	uuid := fmt.Sprintf("4c4c4544-0042-3510-8052-%012x", 0xb4c04f000000+n)
	w.subjects = append(w.subjects, hosts.Subject{Cluster: "prod", Node: name, SystemUUID: uuid, Healthy: true,
		Host: bmc.Host{Name: "prod/" + name, Source: "hosts.d", Levels: []bmc.Level{{Devices: []bmc.Device{d}}}}})
	if w.machines[d.Service()] == nil {
		m := &machine{uuid: uuid, takes: 10 * time.Millisecond}
		if !d.Identifies() {
			m.uuid = ""
		}
		w.machines[d.Service()] = m
	}
	return w.machines[d.Service()]
}

// Inventory implements Engine.
func (w *world) Inventory(context.Context) iter.Seq[hosts.Subject] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Values(slices.Clone(w.subjects))
}

// SubjectOf implements Engine.
func (w *world) SubjectOf(_ context.Context, _, node string) (hosts.Subject, error) {
	for s := range w.Inventory(context.Background()) {
		if s.Node == node {
			return s, nil
		}
	}
	return hosts.Subject{}, &reason.Refusal{Reason: reason.NoSuchNode, Message: "no Node " + node}
}

// Identify implements Engine.
func (w *world) Identify(_ context.Context, s hosts.Subject, level, device int, r bmc.Reading) guard.IdentityVerdict {
	switch d := s.Host.Levels[level].Devices[device]; {
	case !d.Identifies():
		return guard.IdentityNotEnrolled
	case !bmc.UsableUUID(r.Identity.UUID) || s.SystemUUID == "":
		return guard.IdentityUnproven
	case bmc.UUIDsMatch(r.Identity.UUID, s.SystemUUID):
		return guard.IdentityMatches
	}
	return guard.IdentityDiffers
}

// Forbidden implements Engine.
func (w *world) Forbidden(_ context.Context, s hosts.Subject) []reason.Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch s.Node {
	case w.frozen:
		return []reason.Refusal{{Reason: reason.Frozen, Message: "it lied"}}
	case w.twin:
		return []reason.Refusal{{Reason: reason.DuplicateHost, Message: "prod/n-9 has the same MAC"}}
	}
	return nil
}

// Checked implements Engine.
func (w *world) Checked(_ context.Context, c hosts.Checked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checked = append(w.checked, c)
}

// run sweeps in a bubble until f returns.
func (w *world) run(t *testing.T, f func(t *testing.T)) {
	w.runEvery(t, every, f)
}

func (w *world) runEvery(t *testing.T, every time.Duration, f func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		open := func(d bmc.Device) (bmc.Power, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return &asked{w: w, m: w.machines[d.Service()], d: d}, nil
		}
		w.actors = power.NewActors(open)
		w.lockOut = newLockOut(t)
		w.sweep = New(Options{Engine: w, Open: w.actors.Patient(), LockOut: w.lockOut, Every: every, ReadTimeout: readTimeout, Concurrency: DefaultConcurrency,
			Urgent: func(d bmc.Device) (bmc.Power, error) {
				w.change(func() { w.urgent++ })
				return w.actors.Urgent()(d)
			},
			OnEvent: func(e event.Event) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.events = append(w.events, e)
			},
			OnLatency: func(bmc.Driver, time.Duration) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.measured++
			}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.sweep.Run(ctx) }()
		f(t)
		w.change(func() {})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// newLockOut knows of no refused account.
func newLockOut(t *testing.T) *power.LockOut {
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	l := must.Do(power.NewLockOut(t.Context(), store, "one"))(t)
	require.NoError(t, store.Close())
	return l
}

// wait lets time pass. What the test looked at before, or looks at after, is not
// touched meanwhile.
func (w *world) wait(d time.Duration) {
	w.change(func() {})
	time.Sleep(d)
	synctest.Wait()
	w.change(func() {})
}

// result is the only device of a node.
func (w *world) result(t *testing.T, n int) Result {
	t.Helper()
	for _, r := range w.results(t, "prod") {
		if r.Node == fmt.Sprintf("n-%d", n) {
			return r
		}
	}
	t.Fatalf("no result of n-%d", n)
	return Result{}
}

func (w *world) results(t *testing.T, cluster string) []Result {
	t.Helper()
	return must.Do(w.sweep.Results(t.Context(), cluster))(t)
}

func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func failing(kind bmc.Kind) error {
	return &bmc.Error{Kind: kind, Op: "read power state", Addr: "bmc", Err: errors.New(strings.ToLower(string(kind)))}
}

// asked is a client of a machine.
type asked struct {
	w *world
	m *machine
	d bmc.Device

	closed bool
}

func (p *asked) Read(ctx context.Context) (bmc.Reading, error) {
	p.w.mu.Lock()
	m := p.m
	m.reads, m.passwords = append(m.reads, time.Now()), append(m.passwords, p.d.Password.Reveal())
	m.busy++
	m.open++
	if m.busy > 1 {
		m.clash++
	}
	p.w.inFlight++
	p.w.most = max(p.w.most, p.w.inFlight)
	hangs, takes := m.hangs, m.takes
	p.w.mu.Unlock()
	if hangs {
		takes = time.Hour
	}
	var err error
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		err = &bmc.Error{Kind: bmc.KindUnreachable, Op: "read power state", Addr: p.d.String(), Err: ctx.Err()}
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	m.busy--
	p.w.inFlight--
	if m.err != nil && err == nil {
		err = m.err
	}
	if err != nil {
		return bmc.Reading{}, err
	}
	return bmc.Reading{State: bmc.On, Raw: "on", At: time.Now(), Fault: m.fault, Identity: bmc.Identity{UUID: m.uuid}, Took: takes}, nil
}

func (p *asked) Send(context.Context, bmc.Command) (bmc.Receipt, error) {
	panic("the sweep gave a command")
}

func (p *asked) Close(context.Context) error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if !p.closed {
		p.m.open--
	}
	p.closed = true
	return nil
}

func (p *asked) Describe(ctx context.Context) (bmc.Description, error) {
	p.w.mu.Lock()
	p.m.described++
	tells, told := p.m.tells, p.m.description
	p.w.mu.Unlock()
	select {
	case <-time.After(tells):
		return told, nil
	case <-ctx.Done():
		return bmc.Description{}, &bmc.Error{Kind: bmc.KindUnreachable, Op: "describe", Addr: p.d.String(), Err: ctx.Err()}
	}
}

func (p *asked) Audit(context.Context) ([]bmc.Finding, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.m.audits++
	return p.m.weak, p.m.auditErr
}
