package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
)

// errDead is the error of every call of a killed fenced.
var errDead = errors.New("this fenced was killed")

// instance is one installation of fenced, on a separate machine or on one of the
// hosts. Guarded by the world's mutex.
type instance struct {
	w         *World
	n         int
	name      string
	clock     clock
	apiCut    time.Time // the API server cannot be reached until then
	forbidden time.Time // the API server forbids everything until then
	storeCut  time.Time
	handOver  bool
	pauseFile string
	missed    bool      // the store signalled while it was cut off
	again     time.Time // next start; zero while it runs
	restart   time.Time // when it restarts to read its files again; zero = not
	lives     int
	cur       *incarnation
}

// incarnation is one process of an instance, from its start to kill -9.
type incarnation struct {
	i      *instance
	n      int
	rng    *rand.Rand
	dead   bool
	ctx    context.Context
	cancel context.CancelFunc
	view   *view
	knows  knowledge
	engine *engine.Engine // nil until it has started
	member *member        // nil for the only instance
	since  time.Time      // of engine
	news   chan struct{}
	logs   map[logKey]*powerLog
	active map[string]time.Time // time of the last Look of a run, by Node
	stamps map[string]stamp     // of the records that it wrote
	// disturbedAt is when something other than a BMC last kept it from its work.
	disturbedAt time.Time
}

func newInstance(w *World, dir string, n int) *instance {
	i := &instance{w: w, n: n, name: fmt.Sprintf("fenced-%d", n), again: w.began.Add(time.Duration(n) * time.Second),
		pauseFile: filepath.Join(dir, fmt.Sprintf("paused-%d", n))}
	if w.plan.Clocks > 0 {
		i.clock.differs = between(w.ticks, -differsMost, differsMost)
		i.clock.skew, i.clock.ours = i.clock.differs, i.clock.differs
	}
	return i
}

func (c *incarnation) String() string { return fmt.Sprintf("f%d.%d", c.i.n, c.n) }

// reaches reports whether the API server can be reached. w.mu is held.
func (c *incarnation) reaches() bool {
	now := time.Now()
	return !now.Before(c.i.apiCut) && !now.Before(c.i.forbidden) && !c.i.w.api.Down()
}

// call is called at every call that leaves the process, and before every answer:
// a dead process does nothing more, and a living one may be killed here.
func (c *incarnation) call(ctx context.Context, what string) error {
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if !c.dead && !w.calm && w.dice.Float64() < w.plan.Kill {
		w.fault("kill-9", "", "%s at %s", c, what)
		c.kill()
	}
	if c.dead {
		return errDead
	}
	return ctx.Err()
}

// kill ends this process; another one starts soon. w.mu is held.
func (c *incarnation) kill() {
	c.dead = true
	c.i.again = time.Now().Add(between(c.i.w.rng, 2*time.Second, 30*time.Second))
	c.cancel()
}

// down reports whether the host on which it runs is down. The only fenced never
// runs on a host that it does not know as its own, or nobody would bring that
// host back. w.mu is held.
func (i *instance) down() bool {
	return i.n == 0 && i.w.plan.Instances > 1 && slices.ContainsFunc(i.w.hosts, func(h *host) bool {
		return h.own && !h.Gone && h.Kernel != fake.Runs
	})
}

// tick starts what is due. w.mu is held.
func (i *instance) tick(now time.Time) {
	if i.down() {
		if i.cur != nil && !i.cur.dead {
			i.w.note("", "%s dies with its host", i.cur)
			i.cur.kill()
		}
		return
	}
	if i.cur != nil && !i.cur.dead && !i.restart.IsZero() && now.After(i.restart) {
		i.w.note("", "%s is restarted for its files", i.cur)
		i.cur.kill()
	}
	if i.cur != nil && !i.cur.dead {
		i.cur.view.tick(now)
		if i.missed && !now.Before(i.storeCut) {
			i.missed = false
			i.cur.wake()
		}
		return
	}
	if now.Before(i.again) {
		return
	}
	i.lives++
	i.restart = time.Time{}
	c := &incarnation{i: i, n: i.lives, rng: rand.New(rand.NewPCG(i.w.plan.Seed, uint64(1000*(i.n+1)+i.lives))), news: make(chan struct{}, 1),
		logs: map[logKey]*powerLog{}, active: map[string]time.Time{}, stamps: map[string]stamp{}}
	c.ctx, c.cancel = context.WithCancel(i.w.ctx)
	c.view, c.knows = newView(c), i.w.read()
	i.cur = c
	i.w.note("", "%s starts", c)
	i.w.workers.Go(c.live)
}

// live runs the real engine until it is killed.
func (c *incarnation) live() {
	w := c.i.w
	opt := c.options()
	for c.ctx.Err() == nil {
		e, err := engine.New(c.ctx, opt)
		if err != nil { // as systemd does
			_ = sleep(c.ctx, 2*time.Second)
			continue
		}
		w.do(func() { c.engine, c.since = e, time.Now(); w.recordPolicies(c) })
		err = e.Run(c.ctx, func() {})
		w.do(func() {
			c.engine = nil
			if c.ctx.Err() == nil {
				w.violate("L2", "", "%s: the engine ended by itself: %v", c, err)
			}
		})
	}
}

func (c *incarnation) options() engine.Options {
	w, p := c.i.w, c.i.w.plan
	opt := engine.Options{
		Store: &storeClient{inc: c}, StoreID: "shared", Instance: c.i.name, Hosts: inventory{c},
		Open: power.NewActors(c.open).Urgent(), Guards: p.guards(), Run: p.run(), Record: c.record, PauseFile: c.i.pauseFile,
		Power:  power.ReadTiming{ReadTimeout: 5 * time.Second, OffReadSpacing: offReadSpacing},
		Events: event.NewStream(c.told), Own: c.own(),
		Suspended: func() time.Duration { return 0 }, // the machine of the test has another time
		Clusters: []engine.ClusterOptions{{Name: cluster, Mode: p.mode(), Requests: requests{kube{c}}, Reprovision: p.Reprovision, Isolation: p.Isolation,
			ControlPlaneIsolation: p.Isolation, IdentityMode: "required", Watch: c.view, Kube: kube{c}}},
	}
	if p.Others {
		opt.Clusters[0].Checks = checks{kube{c}}
		opt.Escalation = escalate.New(opt.Store, opt.Events.Emit, func(string) escalate.Objects { return handovers{kube{c}} })
	}
	w.do(func() { opt.Clusters[0].FileChecks = c.fileChecks() })
	if p.Instances > 1 {
		c.member = &member{inc: c}
		opt.Owners = c.member
	}
	w.defect.options(&opt)
	return opt
}

// own is how the first fenced knows its own host.
func (c *incarnation) own() (o hosts.Own) {
	c.i.w.do(func() {
		for _, h := range c.i.w.hosts {
			if h.own && c.i.n == 0 {
				o = hosts.Own{MachineID: "machine-" + h.Name, UUIDs: []string{h.UUID}, Addrs: []netip.Addr{h.ownAddress()}}
			}
		}
	})
	return o
}

func (c *incarnation) open(d bmc.Device) (bmc.Power, error) {
	var l *link
	c.i.w.do(func() {
		if h, o := c.i.w.deviceAt(d); h != nil {
			l = &link{inc: c, h: h, outlet: o, account: d.Password, rng: rand.New(rand.NewPCG(c.i.w.plan.Seed, c.rng.Uint64()))}
		}
	})
	if l == nil {
		return nil, &bmc.Error{Kind: bmc.KindUnreachable, Op: "open", Addr: d.String(), Err: errors.New("nothing is there")}
	}
	return l, nil
}

// told records the engine's events in the story.
func (c *incarnation) told(ev event.Event) {
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.search("an event", ev.Node, fmt.Sprintf("%+v", ev))
	if !c.dead {
		w.note(ev.Node, "%s %s %s %s %s %s", c, ev.Type, ev.Step, ev.Action, ev.Reason, ev.Message)
	}
}

// record is the audit log of this process, which fails like the store.
func (c *incarnation) record(ev event.Event) error {
	if err := c.call(c.ctx, "record"); err != nil {
		return err
	}
	w := c.i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.search("an audit entry", ev.Node, fmt.Sprintf("%+v", ev))
	if w.dice.Float64() < w.storeFails() {
		w.fault("audit-write-refused", ev.Node, "")
		return errors.New("the audit log cannot be written")
	}
	if ev.Type == event.Requested {
		w.ledger.told[recordedKey{c, cmp.Or(ev.Node, strings.TrimPrefix(ev.Machine, fake.Namespace+"/m-"))}] = time.Now()
	}
	if ev.Action != "" {
		w.ledger.recorded[recordedKey{c, ev.Run}] = recorded{ev.Action, time.Now()}
	}
	return nil
}

// The host of each fenced has its own wall clock, which differs from the others'
// and is sometimes set wrong. Virtual time is the monotonic clock, and the engine
// uses it for both. So only times that others wrote differ: the API server's, and
// those in the store, which each fenced writes by its own clock.

// differsMost is the maximum difference between a correct clock and the API
// server's.
const differsMost = 2 * time.Second

// apart is the maximum error of an instance about a time that another instance
// wrote.
func (p Plan) apart() time.Duration {
	if p.Clocks == 0 {
		return 0
	}
	return 2 * differsMost
}

// clock is the wall clock of an instance's host. Guarded by the world's mutex.
type clock struct {
	skew    time.Duration // the API server's clock minus this one, as its answers show
	since   time.Time     // time of the last change
	differs time.Duration // skew of a right clock
	// ours is the skew of the times in the store. It follows skew a little later.
	ours    time.Duration
	follows time.Time // zero: it has
	mended  time.Time // when it is set right; zero: it is not wrong by hours
}

// setSkew changes what the API server's answers show. w.mu is held.
func (i *instance) setSkew(skew time.Duration, now time.Time) {
	i.clock.skew, i.clock.since = skew, now
	i.w.fault("clock-skew", "", "%s %s", i.name, skew)
}

// tickClock sets the clock wrong by hours, for a while, and then right. Times
// from the store that a process holds in memory do not change when the clock is
// set, unlike its wall times. So the clock is set wrong before the start, and set
// right while fenced is restarted. w.mu is held.
func (i *instance) tickClock(now time.Time) {
	w, c := i.w, &i.clock
	if !c.follows.IsZero() && now.After(c.follows) {
		c.ours, c.follows = c.skew, time.Time{}
	}
	chance := w.ticks.Float64() < w.plan.Clocks/3600
	switch due := now.After(c.mended); {
	case c.mended.IsZero() && !w.calm && chance:
		c.follows, c.mended = now.Add(10*time.Second), now.Add(between(w.ticks, 20*time.Second, 10*time.Minute))
		i.setSkew(between(w.ticks, -3*time.Hour, 3*time.Hour), now)
	case c.mended.IsZero(), !due:
	case i.cur != nil && !i.cur.dead:
		i.restart = c.mended
	default:
		*c = clock{skew: c.differs, since: now, differs: c.differs, ours: c.differs}
		w.note("", "the clock of %s is right", i.name)
	}
}

// stamp is the version of a record and the skew with which it was written.
type stamp struct {
	version uint64
	skew    time.Duration
}

func stampKey(r state.Record) string { return string(r.Kind) + "/" + r.Key }

// correctedStore is the store as read with a clock that is behind by that much.
type correctedStore struct {
	*memory
	skew time.Duration
}

func (s correctedStore) Get(ctx context.Context, kind state.Kind, key string) (state.Record, error) {
	r, err := s.memory.Get(ctx, kind, key)
	return shiftRecord(r, s.skew), err
}

func (s correctedStore) List(ctx context.Context, kind state.Kind) ([]state.Record, error) {
	list, err := s.memory.List(ctx, kind)
	for i := range list {
		list[i] = shiftRecord(list[i], s.skew)
	}
	return list, err
}

// written matches the times in a record.
var written = regexp.MustCompile(`"(1999|2000)-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)"`)

// shiftRecord returns a record with times that are later by that much.
func shiftRecord(r state.Record, by time.Duration) state.Record {
	if by == 0 {
		return r
	}
	r.Data = written.ReplaceAllFunc(r.Data, func(quoted []byte) []byte {
		at, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(quoted))
		if err != nil {
			panic("sim: read a time of a record: " + err.Error())
		}
		return []byte(at.Add(by).Format(`"` + time.RFC3339Nano + `"`))
	})
	return r
}
