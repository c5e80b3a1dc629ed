package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

var (
	otherTemplate = policy.Template{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "ns", Name: "reboot"}
	powerTemplate = policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Namespace: "ns", Name: "power"}
)

// handingOver makes the world's check one that was handed over, with another remediator's template.
func handingOver(w *world) func(*engine.Options) {
	w.changeCheck(func(c *policy.Check) {
		c.Paused, c.Evaluator, c.Strategy, c.Template = true, "here", policy.CreateRequests, &otherTemplate
	})
	return func(o *engine.Options) { o.Clusters[0].Handovers = w.Handovers() }
}

// others are the requests for other remediators.
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
		e, events, stop := start(t, w, store, handingOver(w))
		time.Sleep(2 * time.Minute)
		require.Len(t, others(w), 1)
		q := others(w)[0]
		assert.Equal(t, []string{"Reboot", "m-1", "reboot"}, []string{q.Kind, q.Name, q.TemplateName})
		assert.Nil(t, q.Order, "the only template")
		gate(t, e, reason.AlreadyRequested)
		answer(w, "True")
		w.Recover()
		time.Sleep(2 * time.Minute)
		assert.Empty(t, others(w))
		assert.Empty(t, e.Runs("c"))
		assert.Empty(t, w.Commands())
		told := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Requested })
		require.Len(t, told, 2)
		assert.Contains(t, told[0].Message, "by an object from RebootTemplate reboot")
		assert.Contains(t, told[1].Message, "delete Reboot ns/m-1")
		stop()
	})
}

// What forbids a run forbids a request, too.
func TestNoRequestWhileAGateRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.setContested(remediate.Yes)
		e, _, stop := start(t, w, store, handingOver(w))
		time.Sleep(2 * time.Minute)
		gate(t, e, reason.Contested)
		_, err := e.Hold(t.Context(), order.Order{Cluster: "c", Node: "n-1", Actor: "p", Reason: "r"})
		require.NoError(t, err)
		w.setContested(remediate.No)
		time.Sleep(2 * time.Minute)
		gate(t, e, reason.Hold)
		assert.Empty(t, others(w))
		_, err = e.ReleaseHold(t.Context(), order.Order{Cluster: "c", Node: "n-1", Actor: "p", Reason: "r"})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Len(t, others(w), 1)
		stop()
	})
}

// While a request is being made, no run starts on its target, not even by hand. // I22
func TestNoRunWhileARequestIsMade(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		begun, release := make(chan struct{}), make(chan struct{})
		w.Do(func(s *fake.State) { s.OnHandover = func() { close(begun); <-release } })
		e, _, stop := start(t, w, store, handingOver(w))
		<-begun
		require.Empty(t, others(w), "it is being made")
		_, err := e.Fence(t.Context(), order.Order{Cluster: "c", Node: "n-1", Actor: "p", Reason: "r", Admin: true})
		refusal, is := reason.AsRefusal(err)
		require.True(t, is, "%v", err)
		assert.Equal(t, reason.AlreadyRequested, refusal.Reason)
		assert.Empty(t, w.Commands())
		close(release)
		time.Sleep(10 * time.Second)
		assert.Len(t, others(w), 1)
		stop()
	})
}

// A template that does not exist, and a request that nobody begins, make the check Disabled. It says
// why, and becomes Active again by itself; the request goes once the Node is Ready.
func TestTemplateThatNobodyCarriesOut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.TemplateMissing = "there is no RebootTemplate ns/reboot" })
		e, events, stop := start(t, w, store, handingOver(w))
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
		time.Sleep(time.Minute)
		assert.Empty(t, others(w))
		var states []string
		for _, ev := range eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.CheckChanged }) {
			states = append(states, string(ev.Reason))
		}
		assert.Equal(t, []string{"CheckDisabled", "", "CheckDisabled", ""}, states)
		stop()
	})
}

// fenced as the first remediator, with a BMC that switches nothing: its run ends when the time is
// over, and only then the other remediator is asked. // I22
func TestAnotherRemediatorAfterFenced(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.dropMachines()
		w.SetFault(fake.IgnoresOff)
		p := nodePolicy()
		p.Strategy, p.Escalation = policy.CreateRequests, []policy.Escalation{
			{Order: 1, Timeout: 90 * time.Second, Template: powerTemplate}, {Order: 2, Timeout: time.Hour, Template: otherTemplate},
		}
		change := withPolicy(w, p)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			change(o)
			o.Clusters[0].Handovers, o.Clusters[0].Requests = w.Handovers(), w.Requests()
			o.Run.OffDeadline = time.Hour
		})
		for len(others(w)) == 0 {
			time.Sleep(time.Second)
			if len(e.Runs("c")) > 0 && only(t, e).Open() {
				require.Empty(t, others(w), "while a run is open")
			}
		}
		assert.False(t, only(t, e).Open())
		assert.Equal(t, "Reboot", others(w)[0].Kind)
		sent := len(w.Commands())
		time.Sleep(20 * time.Minute)
		assert.Len(t, w.Commands(), sent, "fenced leaves the host to the other")
		stop()
	})
}

// fenced as the second remediator: it waits until the first has stopped, its request is made, that of
// the first is deleted, and only then a host is switched. // I22
func TestFencedAfterAnotherRemediator(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.dropMachines()
		p := nodePolicy()
		p.Strategy, p.Escalation = policy.CreateRequests, []policy.Escalation{
			{Order: 1, Timeout: time.Minute, Template: otherTemplate}, {Order: 2, Timeout: time.Hour, Template: powerTemplate},
		}
		change := withPolicy(w, p)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			change(o)
			o.Clusters[0].Handovers, o.Clusters[0].Requests = w.Handovers(), w.Requests()
		})
		for len(others(w)) == 0 {
			time.Sleep(time.Second)
		}
		answer(w, "True")
		time.Sleep(10 * time.Minute)
		require.Len(t, others(w), 1)
		assert.False(t, others(w)[0].TimedOut.IsZero(), "it was told to stop")
		gate(t, e, reason.Contested)
		assert.Empty(t, w.Commands(), "it has not stopped")

		answer(w, "False")
		for len(w.Commands()) == 0 {
			time.Sleep(time.Second)
		}
		assert.Equal(t, bmc.CommandOff, w.Commands()[0])
		assert.Empty(t, others(w), "no other request exists when the host is switched")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		w.Do(func(s *fake.State) { assert.Empty(t, s.Asked, "deleted after the recovery") })
		stop()
	})
}
