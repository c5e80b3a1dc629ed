package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/fake"
)

var (
	otherTemplate = policy.Template{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "ns", Name: "reboot"}
	thirdTemplate = policy.Template{APIVersion: "example.com/v1", Kind: "ReplaceTemplate", Namespace: "ns", Name: "replace"}
	powerTemplate = policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Namespace: "ns", Name: "power"}
)

// handingOver makes the world's check one that was handed over, with another remediator's template.
func handingOver(w *world) func(*engine.Options) {
	w.changeCheck(func(c *policy.Check) {
		c.Paused, c.Evaluator, c.Strategy, c.Template = true, "here", policy.CreateRequests, &otherTemplate
	})
	return func(o *engine.Options) { o.StoreID, o.Escalation = "store", asks(o, w.Handovers()) }
}

func others(w *world) (list []policy.Request) {
	w.Do(func(s *fake.State) {
		for _, q := range s.Others {
			list = append(list, *q)
		}
	})
	return list
}

// answer is what another remediator writes on its only request.
func answer(w *world, processing string) {
	w.Do(func(s *fake.State) {
		for _, q := range s.Others {
			c := *q
			c.Begun, c.Conditions = true, []policy.Condition{{Type: "Processing", Status: processing}}
			s.PutOther(&c)
		}
	})
}

// A check that was handed over, with the template of another remediator: one request is made, no
// host is switched, and the request is deleted when the Node is well. What was done is told.
func TestHandedOverCheckAsksAnotherRemediator(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, _ := start(t, w, store, handingOver(w))
		time.Sleep(2 * time.Minute)
		require.Len(t, others(w), 1)
		q := others(w)[0]
		assert.Equal(t, []string{"Reboot", "m-1", "reboot"}, []string{q.Kind, q.Name, q.TemplateName})
		assert.Regexp(t, "^store/c/[0-9a-z]+-[0-9a-f]{6}$", q.MadeBy, "the installation, the cluster and the record")
		assert.Contains(t, gate(t, e, reason.UnderRemediation).Value, "Reboot ns/m-1 of record ")
		assert.Equal(t, policy.Indeterminate, explained(t, e).Verdict, "no check asks for anything else, and every limit counts it")
		answer(w, "True")
		w.Recover()
		time.Sleep(2 * time.Minute)
		assert.Empty(t, others(w))
		untouched(t, w, e)
		told := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Requested })
		require.Len(t, told, 2)
		assert.Contains(t, told[0].Message, "by Reboot ns/m-1 from RebootTemplate reboot")
		assert.Contains(t, told[1].Message, "delete Reboot ns/m-1")
	})
}

// What forbids a run forbids a request, too.
func TestNoRequestWhileAGateRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.setContested(remediate.Yes)
		e := running(t, w, store, handingOver(w))
		time.Sleep(2 * time.Minute)
		gate(t, e, reason.Contested)
		accepted(t)(e.Hold(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "p", Reason: "r"}))
		w.setContested(remediate.No)
		time.Sleep(2 * time.Minute)
		gate(t, e, reason.Hold)
		assert.Empty(t, others(w))
		accepted(t)(e.ReleaseHold(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "p", Reason: "r"}))
		time.Sleep(time.Minute)
		assert.Len(t, others(w), 1)
	})
}

// Who else is asked to repair a host is asked as late, and by the same fresh reads, as fenced would switch it off
// itself: a kubelet that renews its Lease lives, whatever its clock says. // I4
func TestNoRequestForANodeWhoseKubeletLives(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetLeaseMoving(true)
		w.setContested(remediate.Yes)
		e := running(t, w, store, handingOver(w))
		time.Sleep(2 * time.Minute) // its Lease is read at each try
		w.setContested(remediate.No)
		time.Sleep(2 * time.Minute)
		assert.Contains(t, gate(t, e, reason.NotUnhealthy).Value, "NodeAlive")
		assert.Empty(t, others(w))
		w.SetLeaseMoving(false)
		awaitAsked(t, w, "one is asked", func() bool { return len(others(w)) == 1 })
	})
}

// While a request is being made, no run starts on its target, not even by hand. // I22
func TestNoRunWhileARequestIsMade(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		begun, release := make(chan struct{}), make(chan struct{})
		w.Do(func(s *fake.State) { s.OnHandover = func() error { close(begun); <-release; return nil } })
		e := running(t, w, store, handingOver(w))
		<-begun
		require.Empty(t, others(w), "it is being made")
		refused(t, reason.UnderRemediation)(e.Fence(t.Context(), byAdmin()))
		assert.Empty(t, w.Commands())
		close(release)
		time.Sleep(10 * time.Second)
		assert.Len(t, others(w), 1)
	})
}

// A template that does not exist, and a request that nobody begins, make the check Disabled. It says
// why, and becomes Active again by itself; the request goes once the Node is Ready.
func TestTemplateThatNobodyCarriesOut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.TemplateMissing = "there is no RebootTemplate ns/reboot" })
		e, events, _ := start(t, w, store, handingOver(w))
		time.Sleep(time.Minute)
		gate(t, e, reason.CheckDisabled)
		assert.Empty(t, others(w))
		w.Do(func(s *fake.State) { s.TemplateMissing = "" })
		time.Sleep(time.Minute)
		require.Len(t, others(w), 1)
		time.Sleep(escalate.IgnoredAfter)
		assert.Contains(t, gate(t, e, reason.CheckDisabled).Value, "nobody carries out Reboot ns/m-1")
		assert.Len(t, others(w), 1)
		w.Recover()
		time.Sleep(2 * time.Minute)
		assert.Empty(t, others(w))
		var states []string
		for _, ev := range eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.CheckChanged }) {
			states = append(states, string(ev.Reason))
		}
		assert.Equal(t, []string{"CheckDisabled", "", "CheckDisabled", ""}, states)
	})
}

// asks is an escalation that makes its requests in the only cluster by o.
func asks(opt *engine.Options, o escalate.Objects) *escalate.Escalation {
	return escalate.New(opt.Store, opt.Events.Emit, func(string) escalate.Objects { return o })
}

// askedBy changes by what an escalation makes its requests.
func askedBy(opt *engine.Options, wrap func(escalate.Objects) escalate.Objects) {
	opt.Escalation = asks(opt, wrap(opt.Escalation.(*escalate.Escalation).Objects("c")))
}

// escalating is a FencePolicy for Nodes that asks one remediator after the other.
func escalating(w *world, templates ...policy.Template) func(*engine.Options) {
	w.dropMachines()
	p := nodePolicy()
	p.Strategy = policy.CreateRequests
	for i, t := range templates {
		p.Escalation = append(p.Escalation, policy.Escalation{Order: i + 1, Timeout: time.Minute, Template: t})
	}
	change := withPolicy(w, p)
	return func(o *engine.Options) {
		change(o)
		o.StoreID, o.Escalation, o.Clusters[0].Requests = "store", asks(o, w.Handovers()), w.Requests()
	}
}

// awaitAsked lets the time pass until ok, and requires each second that at most one request exists.
func awaitAsked(t *testing.T, w *world, what string, ok func() bool) {
	t.Helper()
	for range 3600 {
		if ok() {
			return
		}
		require.LessOrEqual(t, len(others(w)), 1, "two remediators are asked at once")
		time.Sleep(time.Second)
	}
	require.Fail(t, what)
}

// askedAndBegun lets the time pass until another remediator is asked, which begins.
func askedAndBegun(t *testing.T, w *world) {
	t.Helper()
	awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
	answer(w, "True")
}

// fenced as the second remediator: it waits until the first has stopped, and until its request is
// gone, and only then a host is switched. // I22
func TestFencedAfterAnotherRemediator(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, escalating(w, otherTemplate, powerTemplate))
		askedAndBegun(t, w)
		time.Sleep(10 * time.Minute)
		require.Len(t, others(w), 1)
		assert.False(t, others(w)[0].TimedOut.IsZero(), "it was told to stop")
		gate(t, e, reason.Contested)
		assert.Empty(t, w.Commands(), "it has not stopped")

		answer(w, "False")
		awaitAsked(t, w, "fenced begins", func() bool { return len(w.Commands()) > 0 })
		assert.Equal(t, bmc.CommandOff, w.Commands()[0])
		assert.Empty(t, others(w), "no other request exists when the host is switched")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		w.Do(func(s *fake.State) { assert.Empty(t, s.Asked, "fenced needs no request to itself") })
	})
}

// A remediator that never touches its request may still act for a while on what it saw: the next one
// is asked a minute after the request is gone, and the first is not asked again. // I22
func TestNextRemediatorAfterASilentOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, escalating(w, otherTemplate, thirdTemplate))
		awaitAsked(t, w, "the first is asked", func() bool { return len(others(w)) == 1 })
		awaitAsked(t, w, "its request goes", func() bool { return len(others(w)) == 0 })
		gone := time.Now()
		gate(t, e, reason.UnderRemediation)
		w.setContested(remediate.Yes)
		time.Sleep(5 * time.Minute)
		assert.Empty(t, others(w), "somebody else is alive")
		gate(t, e, reason.Contested)
		w.setContested(remediate.No)
		awaitAsked(t, w, "the second is asked", func() bool { return len(others(w)) == 1 })
		assert.Equal(t, "Replace", others(w)[0].Kind)
		assert.GreaterOrEqual(t, time.Since(gone), time.Minute)
		answer(w, "False")
		time.Sleep(10 * time.Minute)
		assert.Empty(t, others(w))
		gate(t, e, reason.NoTemplateLeft)
		assert.Empty(t, w.Commands())
	})
}

// What fenced made is known after a restart without the check: its remediator is told to stop, a
// person is told, nobody else acts on the target, and the request goes when the remediator has
// stopped.
func TestRequestOfACheckThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, _, stop := start(t, w, store, escalating(w, otherTemplate, thirdTemplate))
		askedAndBegun(t, w)
		stop()
		e, events, _ := start(t, w, store, func(o *engine.Options) {
			o.StoreID, o.Escalation = "store", asks(o, w.Handovers())
		})
		time.Sleep(time.Minute)
		require.Len(t, others(w), 1)
		assert.False(t, others(w)[0].TimedOut.IsZero(), "it was told to stop")
		x := explained(t, e)
		assert.Equal(t, reason.Contested, x.Gates[0].Reason, "it is what the others wait for")
		assert.Contains(t, x.Gates[0].Value, "no check asks for it any more, and the remediator of Reboot ns/n-1 has not stopped")
		told := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Failed && ev.Reason == reason.Contested })
		assert.Len(t, told, 1, "once")
		refused(t, reason.UnderRemediation)(e.Fence(t.Context(), byAdmin()))

		answer(w, "False")
		time.Sleep(2 * time.Minute) // it had only a status
		assert.Empty(t, others(w))
		accepted(t)(e.Fence(t.Context(), byAdmin()))
	})
}

// A check that may be in a refused file is not gone: the remediator that was asked goes on, and nobody else is asked.
func TestRequestOfACheckInARefusedFile(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, _, stop := start(t, w, store, escalating(w, otherTemplate, thirdTemplate))
		askedAndBegun(t, w)
		stop()
		running(t, w, store, func(o *engine.Options) {
			o.StoreID, o.Escalation = "store", asks(o, w.Handovers())
			o.Clusters[0].FilesRefused = "policies.d/a.yaml:4: spec.limt: unknown key"
		})
		time.Sleep(time.Minute)
		require.Len(t, others(w), 1)
		assert.True(t, others(w)[0].TimedOut.IsZero(), "it was not told to stop")
	})
}

// A cluster with such a request cannot leave the configuration unnoticed.
func TestRequestOfAClusterThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, _, stop := start(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		stop()
		opt := engine.Options{Store: store, Hosts: w, Events: event.NewStream(), Clusters: []engine.ClusterOptions{{Name: "d", Watch: w.Watch(), Kube: w}}}
		opt.Escalation = asks(&opt, nil)
		_, err := engine.New(t.Context(), opt)
		require.ErrorContains(t, err, `Reboot ns/m-1, which fenced made for n-1, ns/m-1, may exist in cluster "c", which the configuration no longer names`)
	})
}

// An installation that lost its state does not know the request: it neither asks the next
// remediator, nor fences, nor deletes what is not its own; also if only its fresh reads find the
// request. // I22
func TestRequestOfAnotherStore(t *testing.T) {
	for name, hidden := range map[string]bool{"watched": false, "hidden": true} {
		scene(t, name, func(t *testing.T, w *world, store *failingStore) {
			change := escalating(w, otherTemplate, powerTemplate)
			_, _, stop := start(t, w, store, change)
			awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
			answer(w, "False")
			stop()
			before, code := others(w), reason.AlreadyRequested
			if hidden {
				w.Do(func(s *fake.State) { s.HideOthers() })
				code = reason.Contested
			}
			other := openStore(t, t.TempDir())
			defer func() { require.NoError(t, other.Close()) }()
			e := running(t, w, other, func(o *engine.Options) { change(o); o.StoreID = "another" })
			time.Sleep(time.Hour)
			gate(t, e, code)
			assert.Equal(t, before, others(w))
			assert.Empty(t, w.Commands())
			w.Recover()
			time.Sleep(10 * time.Minute)
			assert.Equal(t, before, others(w))
		})
	}
}

// Without its mark an object is not fenced's any more, and it still keeps everybody away.
func TestRequestWithoutItsMark(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e := running(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		q := others(w)[0]
		q.MadeBy = "store/d/1"
		w.Do(func(s *fake.State) { s.PutOther(&q) })
		w.Recover()
		time.Sleep(5 * time.Minute)
		assert.Len(t, others(w), 1)
		assert.Contains(t, gate(t, e, reason.Contested).Value, "does not carry fenced's mark")
		w.Do(func(s *fake.State) { s.DropOther(&q) })
		time.Sleep(2 * time.Minute)
		assert.False(t, hasGate(t, e, reason.Contested))
	})
}

func hasGate(t *testing.T, e *engine.Engine, code reason.Code) bool {
	t.Helper()
	x := explained(t, e)
	return slices.ContainsFunc(x.Gates, func(g reason.Gate) bool { return !g.Pass && g.Reason == code })
}

// slowTemplates counts who looks for templates. Those of one kind are not answered for.
type slowTemplates struct {
	escalate.Objects
	looks, dead *atomic.Int32
}

func (s slowTemplates) Missing(ctx context.Context, check *policy.Check, t policy.Template) (string, error) {
	s.looks.Add(1)
	if t.Kind != "DeadTemplate" {
		return s.Objects.Missing(ctx, check, t)
	}
	s.dead.Add(1)
	select {
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
	}
	return "", errors.New("no answer")
}

// beside adds checks with templates for whose kind nobody answers.
func beside(o *engine.Options, n int, s slowTemplates) {
	askedBy(o, func(made escalate.Objects) escalate.Objects {
		s.Objects = made
		return s
	})
	for i := range n {
		p := nodePolicy()
		p.Name, p.Selector, p.Strategy = fmt.Sprint("a", i), labels.Nothing(), policy.CreateRequests
		p.Template = &policy.Template{APIVersion: "example.com/v1", Kind: "DeadTemplate", Namespace: "ns", Name: fmt.Sprint("t", i)}
		o.Clusters[0].FileChecks = append(o.Clusters[0].FileChecks, p)
	}
}

// A kind of template for which nobody answers delays no object of another kind: that of a target that
// has recovered goes in the next round. Such a kind costs one timeout in each look.
func TestDeadTemplateDelaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change, looks, dead := escalating(w, otherTemplate), &atomic.Int32{}, &atomic.Int32{}
		running(t, w, store, func(o *engine.Options) { change(o); beside(o, 20, slowTemplates{looks: looks, dead: dead}) })
		askedAndBegun(t, w)
		time.Sleep(10 * time.Second)
		require.Len(t, others(w), 1)
		before := dead.Load()
		w.Recover()
		time.Sleep(3 * time.Second)
		assert.Empty(t, others(w))
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, dead.Load()-before, int32(5), "one for each look, of which there is one in twenty seconds")
	})
}

// That nobody carries out an object is known also while it cannot be read: its check stays Disabled.
func TestIgnoredObjectThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, _ := start(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		time.Sleep(escalate.IgnoredAfter + time.Minute)
		gate(t, e, reason.CheckDisabled)
		w.Do(func(s *fake.State) { s.OthersFail = errors.New("no answer") })
		time.Sleep(5 * time.Minute)
		gate(t, e, reason.CheckDisabled)
		w.Do(func(s *fake.State) { s.OthersFail = nil })
		time.Sleep(10 * time.Minute)
		assert.Len(t, eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.CheckChanged }), 1, "it was never Active again")
		answer(w, "True")
		time.Sleep(time.Minute)
		assert.False(t, hasGate(t, e, reason.CheckDisabled))
	})
}

// A standby asks nothing about templates: it makes no request. When it leads, it asks.
func TestStandbyLooksForNoTemplate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change, looks := handingOver(w), map[string]*atomic.Int32{"a": {}, "b": {}}
		p := newPair(t, w, store, func(name string, o *engine.Options) {
			change(o)
			beside(o, 0, slowTemplates{looks: looks[name], dead: &atomic.Int32{}})
		})
		p.give("a")
		time.Sleep(10 * time.Minute)
		assert.Greater(t, looks["a"].Load(), int32(30))
		assert.Zero(t, looks["b"].Load())
		p.stop["a"]()
		p.give("b")
		time.Sleep(time.Minute)
		assert.NotZero(t, looks["b"].Load())
		p.stop["b"]()
	})
}
