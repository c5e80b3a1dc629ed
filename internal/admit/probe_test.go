package admit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/suspend"
)

// slowKube answers a look after a second, and counts those at the same time.
type slowKube struct {
	run.Kube
	inside, most atomic.Int64
}

func (k *slowKube) Look(context.Context, remediate.Run, [][]byte) (f run.Fresh) {
	k.most.Store(max(k.most.Load(), k.inside.Add(1)))
	time.Sleep(time.Second)
	k.inside.Add(-1)
	f.Observation.Contested = remediate.No
	return f
}

// Of many candidates the first need not wait for the last. The order of a person waits for none of them.
func TestFewCandidatesLookAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := &slowKube{}
		ps := newProbes(Options{Kube: kube, Model: &cluster.Model{}}, func() {})
		var g sync.WaitGroup
		var mu sync.Mutex
		byTime := map[time.Duration]int{}
		probe := func(draft remediate.Run) {
			began := time.Now()
			g.Go(func() {
				p := ps.probe(t.Context(), draft, nil)
				assert.Empty(t, p.contested)
				mu.Lock()
				defer mu.Unlock()
				byTime[p.at.Sub(began)]++
			})
		}
		for range 2*looksAtOnce + 1 {
			probe(remediate.Run{Strategy: remediate.DeleteMachine})
		}
		synctest.Wait()
		probe(remediate.Run{Strategy: remediate.DeleteMachine, Manual: &remediate.Order{Actor: "ada"}})
		g.Wait()
		assert.Equal(t, map[time.Duration]int{time.Second: looksAtOnce + 1, 2 * time.Second: looksAtOnce, 3 * time.Second: 1}, byTime)
		assert.EqualValues(t, looksAtOnce+1, kube.most.Load())
	})
}

// A candidate that has looked at nothing passes no gate, and leaves its place to others.
func TestProbeThatEndsBeforeItsTurnPassesNoGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newProbes(Options{Kube: &slowKube{}, Model: &cluster.Model{}}, func() {})
		require.NoError(t, ps.looks.Acquire(t.Context(), looksAtOnce))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := ps.probe(ctx, remediate.Run{Strategy: remediate.DeleteMachine}, nil)
		assert.Contains(t, p.contested, "cannot read whether another controller acts")
		assert.Zero(t, p.look)
		ps.looks.Release(1)
		assert.Empty(t, ps.probe(t.Context(), remediate.Run{Strategy: remediate.DeleteMachine}, nil).contested)
	})
}

// answeringKube answers a look.
type answeringKube struct {
	run.Kube
	seen remediate.Observation
}

func (k answeringKube) Look(context.Context, remediate.Run, [][]byte) run.Fresh {
	return run.Fresh{Observation: k.seen, Err: errors.New("timeout")}
}

// A run names the clusters in which it begins, also a separate management cluster: a record without that one would end when a kubeconfig
// leads to another cluster, which has no such Machine. // I27
func TestNoRunBeginsInAnUnknownCluster(t *testing.T) {
	for name, c := range map[string]struct {
		apart        bool
		work, manage string
		wants        string
	}{
		"one cluster":                    {false, "w", "", ""},
		"one cluster, unread":            {false, "", "", "cannot read which cluster answers: timeout"},
		"two":                            {true, "w", "m", ""},
		"the management cluster, unread": {true, "w", "", "cannot read which management cluster answers: timeout"},
	} {
		ps := newProbes(Options{Model: &cluster.Model{Options: cluster.Options{Rules: policy.Rules{ManagementApart: c.apart}}},
			Kube: answeringKube{seen: remediate.Observation{Contested: remediate.No, ClusterUID: c.work, ManagementUID: c.manage}}}, func() {})
		p := ps.probe(t.Context(), remediate.Run{Strategy: remediate.DeleteMachine}, nil)
		assert.Equal(t, c.wants, p.replaced, name)
		assert.Equal(t, []string{c.work, c.manage}, []string{p.draft.Target.ClusterUID, p.draft.Target.ManagementUID}, name)
	}
}

// If only the fresh objects show that the host is a control-plane host, its run gets the
// isolation for such hosts. // I12
func TestFreshControlPlaneRoleSetsTheIsolation(t *testing.T) {
	d := cluster.Drafter{Isolation: remediate.IsolateDelete}
	p := &probe{draft: remediate.Run{Isolation: remediate.IsolateDelete}, controlPlane: true}
	r := p.complete(d, nil)
	assert.True(t, r.ControlPlane)
	assert.Equal(t, remediate.IsolateTaint, r.Isolation)
	p.draft.Target.MachineAPI = policy.OpenShiftMachineAPI
	assert.Equal(t, remediate.IsolateDelete, p.complete(d, nil).Isolation)
}

// The end of a pause that a clock two hours ahead has written does not keep fenced quiet for two
// hours. // I16
func TestQuietPeriodBeginsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		f := &Freshness{}
		f.opt.Limits = cluster.NewLimits(guard.Limits{QuietPeriod: time.Minute}, remediate.Limits{})
		f.BeQuiet(now.Add(2 * time.Hour))
		assert.Equal(t, now.Add(time.Minute), f.QuietUntil())
		f.BeQuiet(now.Add(-time.Hour))
		assert.Equal(t, now.Add(time.Minute), f.QuietUntil(), "it is not shortened")
	})
}

func TestWithDetail(t *testing.T) {
	assert.Equal(t, "not synced yet", withDetail("not synced yet", ""))
	assert.Equal(t, "not synced yet; refused", withDetail("not synced yet", "refused"))
}

// Whatever lets the daemon act on something that it did not act on before begins a quiet
// period. // I18
func TestWhatEnlargesTheScope(t *testing.T) {
	in := func(mode string, requests ...string) state.Scope { return state.Scope{Mode: mode, Requests: requests} }
	check := func(digest string) state.Scope {
		return state.Scope{Mode: guard.ModeEvaluate, Checks: map[string]string{"FencePolicy a": digest}}
	}
	for name, c := range map[string]struct {
		before, now state.Scope
		larger      bool
	}{
		"nothing on record":                       {in(""), in(guard.ModeObserve), true},
		"the same":                                {in(guard.ModeRespond, "metal3Remediations"), in(guard.ModeRespond, "metal3Remediations"), false},
		"to observe":                              {in(guard.ModeEvaluate), in(guard.ModeObserve), false},
		"from observe":                            {in(guard.ModeObserve), in(guard.ModeRespond), true},
		"evaluate also acts on checks":            {in(guard.ModeRespond), in(guard.ModeEvaluate), true},
		"respond also acts on annotations":        {in(guard.ModeEvaluate), in(guard.ModeRespond), true},
		"another kind of requests":                {in(guard.ModeRespond), in(guard.ModeRespond, "metal3Remediations"), true},
		"another namespace of requests":           {in(guard.ModeRespond, "requestNamespaces a"), in(guard.ModeRespond, "requestNamespaces a", "requestNamespaces b"), true},
		"the same check":                          {check("1/2"), check("1/2"), false},
		"another selector":                        {check("1/2"), check("3/2"), true},
		"another limit":                           {check("1/2"), check("1/3"), true},
		"a limit that was not stored yet":         {check("1"), check("1/3"), false},
		"a check less, with its limit":            {check("1/2"), in(guard.ModeEvaluate), false},
		"a kind of requests less than there were": {in(guard.ModeRespond, "metal3Remediations"), in(guard.ModeRespond), false},
	} {
		assert.Equal(t, c.larger, whyEnlarged(c.before, c.now) != "", name)
	}
}

// A check that is read again is the same, and whatever it lets fenced do otherwise makes another one of it. // I18
func TestScopeTellsChecksApart(t *testing.T) {
	read := func(change func(*policy.Check)) state.Scope {
		c := policy.Check{Kind: policy.FencePolicyKind, Name: "p", Selector: labels.Everything(), SelectsNodes: true, Strategy: policy.CreateRequests,
			Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Hour}}, MaxUnhealthy: new(intstr.FromInt32(1)),
			Template: &policy.Template{Kind: "T", Name: "a"}, Escalation: []policy.Escalation{{Template: policy.Template{Kind: "T", Name: "b"}}},
			Windows: []policy.Window{{Text: "0 2 * * *", Duration: time.Hour}}}
		change(&c)
		return scopeOf(Options{Mode: guard.ModeEvaluate, Files: []policy.Check{c}})
	}
	before := read(func(*policy.Check) {})
	assert.Empty(t, whyEnlarged(before, read(func(c *policy.Check) { c.Source = "b.yaml:1" })))
	for name, change := range map[string]func(*policy.Check){
		"limit":      func(c *policy.Check) { c.MaxUnhealthy = new(intstr.FromInt32(2)) },
		"no limit":   func(c *policy.Check) { c.MaxUnhealthy = nil },
		"timeout":    func(c *policy.Check) { c.Conditions[0].Timeout = time.Minute },
		"window":     func(c *policy.Check) { c.Windows = nil },
		"template":   func(c *policy.Check) { c.Template.Name = "c" },
		"escalation": func(c *policy.Check) { c.Escalation = nil },
	} {
		assert.NotEmpty(t, whyEnlarged(before, read(change)), name)
	}
}

// A check of OpenShift and one of the Cluster API may have one name, in one namespace. // I18
func TestScopeTellsChecksOfOneNameApart(t *testing.T) {
	read := func(apis ...string) state.Scope {
		var files []policy.Check
		for _, api := range apis {
			c := policy.Check{Kind: "MachineHealthCheck", APIVersion: api, Namespace: "n", Name: "c", Selector: labels.Everything()}
			if strings.HasPrefix(api, "cluster.x-k8s.io/") {
				c.ClusterName = "w"
			}
			files = append(files, c)
		}
		return scopeOf(Options{Mode: guard.ModeEvaluate, Files: files})
	}
	const one, other = "machine.openshift.io/v1beta1", "cluster.x-k8s.io/v1beta2"
	both := read(one, other)
	assert.NotEmpty(t, whyEnlarged(read(other), both), "one is new")
	assert.NotEmpty(t, whyEnlarged(read(one), both), "the other is new")
	assert.Empty(t, whyEnlarged(both, both))
	assert.Empty(t, whyEnlarged(both, read(other, one)), "files may get other names")
}

// quietWatch is a Watch of a cluster where nothing happens.
type quietWatch struct{}

func (quietWatch) Changes() []policy.Change { return nil }

func (quietWatch) Changed() <-chan struct{} { return nil }

func (quietWatch) View() View { return View{Synced: true} }

// readerOf gives an evidenceReader over two Nodes that have just become Unknown, with a check that acts at once if
// their hosts are off, and lets this host be suspended for a time.
func readerOf(t *testing.T) (er *evidenceReader, suspendFor func(time.Duration)) {
	t.Helper()
	var total time.Duration
	awake := func() suspend.Awake { return suspend.StayAwake(func() time.Duration { return total }) }
	opt := Options{Model: cluster.New(cluster.Options{Name: "c"}, time.Now()), View: NewFreshness(FreshnessOptions{Watch: quietWatch{}, Awake: awake})}
	now := time.Now()
	check := &policy.Check{Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p", Selector: labels.Everything(), SelectsNodes: true, Source: "cluster",
		Strategy: policy.PowerCycleHosts, ShortenOnEvidence: true, Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Hour}}}
	changes := []policy.Change{{ID: policy.ObjectID{APIVersion: check.APIVersion, Kind: check.Kind, Name: check.Name}, Value: check}}
	for _, name := range []string{"n-1", "n-2"} {
		n := &policy.Node{Name: name, UID: "uid-" + name, Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: now}})}
		changes = append(changes, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}, Value: n})
	}
	opt.Model.Follow(now, changes, now)
	return &evidenceReader{opt: opt, wake: func() {}, byNode: map[string]*evidence{}}, func(d time.Duration) {
		total += d
		opt.View.View()
	}
}

// A reading that ends after it was dropped does not count for the checks that wait now.
func TestReadingThatWasDroppedIsIgnored(t *testing.T) {
	er, _ := readerOf(t)
	old := er.markRunning("n-1")
	er.dropAllBut(nil, time.Now())
	fresh := er.markRunning("n-1")
	fresh.off = true
	er.recordReading("n-1", old, false)
	assert.True(t, fresh.running && fresh.off)
	er.recordReading("n-1", fresh, false)
	assert.False(t, fresh.running || fresh.off)
}

// The ledger no longer has a host as reading Off when the reading is too old, when no
// check waits for the host any longer, and after a suspend of this host. // I1, I16
func TestReadsOffIsWithdrawn(t *testing.T) {
	readsOff := func(er *evidenceReader, node string) bool {
		for _, c := range er.opt.Model.Objects.ActingChecks(time.Now()) {
			if slices.ContainsFunc(c.Targets, func(t policy.TargetReport) bool { return t.Node == node && t.Acts() }) {
				return true
			}
		}
		return false
	}
	told := func(t *testing.T) (*evidenceReader, func(time.Duration)) {
		er, suspendFor := readerOf(t)
		er.recordReading("n-1", er.markRunning("n-1"), true)
		er.updateBook(time.Now())
		assert.True(t, readsOff(er, "n-1"))
		return er, suspendFor
	}
	er, _ := told(t)
	er.updateBook(time.Now().Add(evidenceMaxAge + time.Second))
	assert.False(t, readsOff(er, "n-1"), "it is old")
	er, _ = told(t)
	er.dropAllBut(nil, time.Now())
	assert.False(t, readsOff(er, "n-1"), "nobody waits")
	er, suspendFor := told(t)
	running := er.markRunning("n-2")
	suspendFor(time.Minute)
	er.updateBook(time.Now())
	assert.False(t, readsOff(er, "n-1"), "this host was suspended")
	er.recordReading("n-2", running, true) // it was read in part before
	er.updateBook(time.Now())
	assert.False(t, readsOff(er, "n-2"))
}

// Only the host's own, identified BMC shortens a wait.
func TestOnlyTheOwnBMCShortensAWait(t *testing.T) {
	off := remediate.Observation{ProofKind: remediate.ProofBMC, Power: bmc.Reading{State: bmc.Off}, Identity: remediate.Yes}
	assert.True(t, ownBMCReadsOff(off))
	for name, spoil := range map[string]func(*remediate.Observation){
		"a further level": func(s *remediate.Observation) { s.Level = 1 },
		"an outlet":       func(s *remediate.Observation) { s.ProofKind = remediate.ProofDevice },
		"On":              func(s *remediate.Observation) { s.Power.State = bmc.On },
		"a stranger":      func(s *remediate.Observation) { s.Identity = remediate.CannotTell },
	} {
		s := off
		spoil(&s)
		assert.False(t, ownBMCReadsOff(s), name)
	}
}

// An order to fence by hand needs no check, but it is given once: what an old backup or a reboot has overtaken
// justifies no Off. // I4
func TestOrderOfAHostThatHasBootedSince(t *testing.T) {
	now := time.Now()
	r := remediate.Run{Attempt: 1, Intervened: true, Manual: &remediate.Order{At: now.Add(-time.Minute)}, Target: remediate.Target{Node: "n", NodeUID: "u", BootID: "b1"}}
	seen := remediate.Observation{Node: remediate.Node{Exists: remediate.Yes, UID: "u", BootID: "b2", Ready: remediate.Yes}}
	for name, c := range map[string]struct {
		change func(r *remediate.Run, n *remediate.Node)
		want   remediate.Answer
	}{
		"it works after another boot":      {func(*remediate.Run, *remediate.Node) {}, remediate.No},
		"nothing was switched yet":         {func(r *remediate.Run, _ *remediate.Node) { r.Intervened = false }, remediate.No},
		"a person has it begin again":      {func(r *remediate.Run, _ *remediate.Node) { r.Revalidate = true }, remediate.Yes},
		"in a later attempt":               {func(r *remediate.Run, _ *remediate.Node) { r.Attempt = 2 }, remediate.Yes},
		"after the isolation":              {func(r *remediate.Run, _ *remediate.Node) { r.Isolated = now }, remediate.Yes},
		"its Node is not Ready":            {func(_ *remediate.Run, n *remediate.Node) { n.Ready = remediate.No }, remediate.Yes},
		"the same boot":                    {func(_ *remediate.Run, n *remediate.Node) { n.BootID = "b1" }, remediate.Yes},
		"nobody knows which boot it had":   {func(r *remediate.Run, _ *remediate.Node) { r.Target.BootID = "" }, remediate.Yes},
		"nobody knows which boot it is in": {func(_ *remediate.Run, n *remediate.Node) { n.BootID = "" }, remediate.Yes},
	} {
		r, s := r, seen
		c.change(&r, &s.Node)
		got, _ := (&runCluster{}).Justified(r, run.Fresh{}, s, now)
		assert.Equal(t, c.want, got, name)
	}
}

// synced is a watch that has the complete view.
type synced struct{ Watch }

func (synced) View() View { return View{Synced: true} }

// acting is a cluster with a FencePolicy that acts on each Node that is not ready.
type acting struct {
	model *cluster.Model
	check policy.Check
	now   time.Time
}

func newActing(template *policy.Template) *acting {
	w := &acting{now: time.Now(), check: policy.Check{
		Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p", Selector: labels.Everything(), SelectsNodes: true, Source: "cluster",
		Strategy: policy.CreateRequests, Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}}, Template: template,
	}}
	limits := guard.Limits{MaxInFlight: 50, MaxInFlightPercent: 100, MaxInFlightPerZone: 50, MaxInFlightTotal: 50, MaxFencesPerDay: 50, ZoneBreakerMin: 50, ZoneKey: "zone"}
	w.model = cluster.New(cluster.Options{Name: "c", Limits: cluster.NewLimits(limits, remediate.Limits{RunTimeout: time.Hour})}, w.now)
	w.put()
	return w
}

// put shows the check as it is now, and remove shows that it is gone.
func (w *acting) put() {
	check := w.check
	w.show(policy.FencedAPI, check.Kind, "", check.Name, &check)
}

func (w *acting) remove() { w.show(policy.FencedAPI, w.check.Kind, "", w.check.Name, nil) }

func (w *acting) show(api, kind, namespace, name string, value any) {
	w.model.Follow(w.now, []policy.Change{{ID: policy.ObjectID{APIVersion: api, Kind: kind, Namespace: namespace, Name: name}, Value: value}}, w.now)
}

// target shows the Node n, which is not ready, and its Machine, and returns its candidate.
func (w *acting) target(t *testing.T) (*policy.Machine, *policy.Node, cluster.Candidate) {
	t.Helper()
	m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "n", UID: "1", NodeName: "n"}
	n := &policy.Node{Name: "n", UID: "uid-n", OpenShiftMachine: "ns/n", Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: w.now.Add(-time.Hour)}})}
	w.show(m.APIVersion, "Machine", "ns", "n", m)
	w.show("v1", "Node", "", "n", n)
	checks := w.model.Objects.ActingChecks(w.now)
	require.Len(t, checks, 1)
	require.Len(t, checks[0].Targets, 1)
	a, ok := w.model.CandidateForCheck(w.model.Objects.Check(w.check.ID()), &checks[0].Targets[0])
	require.True(t, ok)
	return m, n, a
}

// By a fresh look, a run of fenced and an object for another remediator are asked for in the same way: for this
// Node and Machine, and only if all was read. // I4
func TestOneFreshQuestionForEveryAction(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *acting, f *run.Fresh, s *remediate.Observation)
		want   remediate.Answer
		why    string
	}{
		"as before":                   {func(*acting, *run.Fresh, *remediate.Observation) {}, remediate.Yes, ""},
		"another Machine of its name": {func(_ *acting, f *run.Fresh, _ *remediate.Observation) { f.Machine.UID = "2" }, remediate.No, "the Machine is gone or was replaced"},
		"no Machine":                  {func(_ *acting, f *run.Fresh, _ *remediate.Observation) { f.Machine = nil }, remediate.No, "the Machine is gone or was replaced"},
		"the Machine was not read":    {func(_ *acting, _ *run.Fresh, s *remediate.Observation) { s.Machine.Exists = remediate.CannotTell }, remediate.CannotTell, ""},
		"the Node was not read":       {func(_ *acting, _ *run.Fresh, s *remediate.Observation) { s.Node.Exists = remediate.CannotTell }, remediate.CannotTell, ""},
		"the Node is Ready": {func(_ *acting, f *run.Fresh, _ *remediate.Observation) {
			f.Node.Conditions = policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "True"}})
		}, remediate.No, "the target is Healthy now"},
		"the kubelet renews its Lease": {func(a *acting, _ *run.Fresh, s *remediate.Observation) {
			s.Lease.ResourceVersion, s.At = "2", a.now.Add(time.Second)
		}, remediate.No, "refused now: NodeAlive"},
		"another template": {func(a *acting, _ *run.Fresh, _ *remediate.Observation) {
			a.check.Template = &policy.Template{APIVersion: "example.com/v1", Kind: "ReplaceTemplate", Namespace: "ns", Name: "replace"}
			a.put()
		}, remediate.No, "the check asks for something else now"},
		"the check is gone": {func(a *acting, _ *run.Fresh, _ *remediate.Observation) {
			a.remove()
		}, remediate.No, "the check is gone"},
	} {
		own := policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Namespace: "ns", Name: "power"}
		other := policy.Template{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "ns", Name: "reboot"}
		for _, from := range []*policy.Template{&own, &other} {
			a := newActing(from)
			m, n, before := a.target(t)
			rc := &runCluster{Freshness: freshnessOf(synced{}), opt: Options{Model: a.model}, probes: newProbes(Options{}, nil)}
			rc.took(time.Now())
			require.Equal(t, from == &other, before.AsksOther)
			ask := func(change func(*acting, *run.Fresh, *remediate.Observation)) (remediate.Answer, string) {
				freshMachine, freshNode := *m, *n
				s := remediate.Observation{At: a.now, Node: remediate.Node{Exists: remediate.Yes}, Machine: remediate.Machine{Exists: remediate.Yes}, Lease: remediate.Lease{Known: true, ResourceVersion: "1"}}
				f := run.Fresh{Node: &freshNode, Machine: &freshMachine}
				change(a, &f, &s)
				return rc.askedFresh(before, f, s, a.now.Add(2*time.Second))
			}
			answer, _ := ask(func(*acting, *run.Fresh, *remediate.Observation) {})
			require.Equal(t, remediate.Yes, answer)
			answer, why := ask(c.change)
			assert.Equal(t, c.want, answer, "%s, %s", name, from.Name)
			assert.Contains(t, why, c.why, "%s, %s", name, from.Name)
		}
	}
}

// The versions of a Lease are dated by the clock of the reader. A slow look that ends after a newer one is no renewal, and names
// that nobody reads any more are forgotten. // I4
func TestVersionsOfALeaseAreDatedByTheirReader(t *testing.T) {
	s, noon := &leasesSeen{byNode: map[string]leaseSeen{}}, time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	year2999 := time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	read := func(version string, began, ended int) policy.Lease {
		return s.note("n", remediate.Lease{Known: true, ResourceVersion: version, RenewTime: year2999}, at(began), at(ended))
	}
	assert.Equal(t, policy.Lease{RenewTime: year2999, Since: at(1)}, read("1", 0, 1))
	assert.Equal(t, policy.Lease{RenewTime: year2999, Since: at(1)}, read("1", 10, 11), "it stands still")
	assert.Equal(t, policy.Lease{RenewTime: year2999, Since: at(21), Before: at(10)}, read("2", 20, 21), "it was renewed after the look that began at 10")
	assert.Equal(t, policy.Lease{RenewTime: year2999, Since: at(21), Before: at(10)}, read("1", 15, 22), "the answer of a slower look")
	assert.Equal(t, policy.Lease{}, s.note("n", remediate.Lease{}, at(30), at(31)), "it could not be read")
	assert.Equal(t, policy.Lease{}, s.note("n", remediate.Lease{Known: true}, at(32), at(33)), "there is none")
	later := int(2 * leasesKept / time.Second)
	for i := range 3 {
		s.note(fmt.Sprint("n-", i), remediate.Lease{Known: true, ResourceVersion: "1"}, at(later+i), at(later+i))
	}
	assert.Len(t, s.byNode, 3, "n is forgotten")
}

// A run begins in the moment in which the leadership ends: one of both has the BMC session, so that no run sends on one that is closed.
func TestSessionOfAProbeIsTakenOnce(t *testing.T) {
	for range 100 {
		ps, p := newProbes(Options{}, nil), &probe{session: &power.Session{}}
		var taken atomic.Int32
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if ps.take(p) != nil {
					taken.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, taken.Load())
	}
}
