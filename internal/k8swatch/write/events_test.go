package write

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/test/must"
)

// eventScene is a writer of Events and the API server it writes to, in virtual time.
type eventScene struct {
	c      *Events
	api    *fake.Clientset
	logged *observer.ObservedLogs
	stop   func()

	mu     sync.Mutex
	answer func(verb string) error // what the API server answers instead; nil: it does what is asked
}

func withEvents(t *testing.T, run func(t *testing.T, s *eventScene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zapcore.InfoLevel)
		server := client.NewServer("workload", "", false, nil, zap.New(core))
		s := &eventScene{c: NewEvents(&client.Servers{Work: server, Manage: server}), api: fake.NewClientset(), logged: logged}
		s.c.work.api = func(ns string) eventAPI { return s.api.CoreV1().Events(ns) }
		s.api.PrependReactor("*", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
			s.mu.Lock()
			answer := s.answer
			s.mu.Unlock()
			if answer == nil || a.GetVerb() == "list" {
				return false, nil, nil
			}
			err := answer(a.GetVerb())
			return err != nil, nil, err
		})
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { defer close(done); s.c.DeliverEvents(ctx) }()
		s.stop = func() { cancel(); <-done }
		defer s.stop()
		run(t, s)
	})
}

// answers changes what the API server answers.
func (s *eventScene) answers(f func(verb string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// written are the Events of the API server, the first first.
func (s *eventScene) written(t *testing.T) []corev1.Event {
	t.Helper()
	list := must.Do(s.api.CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{}))(t)
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return a.FirstTimestamp.Compare(b.FirstTimestamp.Time) })
	return list.Items
}

// A Machine and the request for it have one name, and are told the same at the same moment.
func TestEventsOfOneName(t *testing.T) {
	withEvents(t, func(t *testing.T, s *eventScene) {
		at := time.Now()
		s.c.QueueEvent(event.KubeEvent{APIVersion: "machine.openshift.io/v1beta1", Kind: "Machine", Namespace: "ns", Name: "m", UID: "1", At: at, Reason: "RemediationStarted", Message: "run r"})
		s.c.QueueEvent(event.KubeEvent{APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediation", Namespace: "ns", Name: "m", UID: "2", At: at, Reason: "RemediationStarted", Message: "run r"})
		time.Sleep(time.Minute)
		require.Len(t, s.written(t), 2)
		assert.Zero(t, s.c.EventsDropped())
	})
}

// An Event goes to the API server that has the object.
func TestEventsGoWhereTheirObjectIs(t *testing.T) {
	work, manage := client.NewServer("workload", "", false, nil, zap.NewNop()), client.NewServer("management", "", true, nil, zap.NewNop())
	c := NewEvents(&client.Servers{Work: work, Manage: manage})
	require.NotSame(t, c.work, c.manage)
	for where, list := range map[*eventWriter][]event.KubeEvent{
		c.work: {{APIVersion: "v1", Kind: "Node"}, {APIVersion: "machine.openshift.io/v1beta1", Kind: "Machine"}, {APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediation"}},
		c.manage: {{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine"}, {APIVersion: "fenced.io/v1alpha1", Kind: "FencedRemediation", OnManagementAPI: true},
			{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta1", Kind: "Metal3Remediation", OnManagementAPI: true}},
	} {
		for _, n := range list {
			n.Name, n.At = "x", time.Now()
			before := len(where.queue)
			c.QueueEvent(n)
			assert.Len(t, where.queue, before+1, "%+v", n)
		}
	}
}

func noteOn(node, reason, message string) event.KubeEvent {
	return event.KubeEvent{APIVersion: "v1", Kind: "Node", Name: node, UID: node, At: time.Now(), Reason: reason, Message: message}
}

var errUnreachable = errors.New("connection refused")

// While the API server does not answer, nobody waits, the newest Events are kept, and the
// rest is counted.
func TestEventsOutlastAnOutage(t *testing.T) {
	withEvents(t, func(t *testing.T, s *eventScene) {
		s.answers(func(string) error { return errUnreachable })
		const many = maxQueuedEvents + 88
		for i := range many {
			s.c.QueueEvent(noteOn(fmt.Sprintf("n-%d", i), "HostPoweredOff", "off"))
			time.Sleep(2 * eventDelay)
		}
		s.answers(nil)
		time.Sleep(10 * time.Minute)
		written := s.written(t)
		require.Len(t, written, maxQueuedEvents+1, "and the one that was being tried")
		assert.Equal(t, "n-0", written[0].InvolvedObject.Name)
		assert.Equal(t, fmt.Sprintf("n-%d", many-1), written[len(written)-1].InvolvedObject.Name)
		assert.Equal(t, uint64(many-len(written)), s.c.EventsDropped())
		assert.True(t, written[0].FirstTimestamp.Time.Before(time.Now().Add(-many*time.Second)), "it says when it happened")
	})
}

func TestOldEventsAreDropped(t *testing.T) {
	withEvents(t, func(t *testing.T, s *eventScene) {
		s.answers(func(string) error { return errUnreachable })
		s.c.QueueEvent(noteOn("a", "HostPoweredOff", "off"))
		s.c.QueueEvent(noteOn("b", "HostPoweredOff", "off"))
		time.Sleep(maxEventAge + time.Minute)
		s.c.QueueEvent(noteOn("c", "HostPoweredOff", "off"))
		s.answers(nil)
		time.Sleep(time.Minute)
		require.Len(t, s.written(t), 1)
		assert.Equal(t, "c", s.written(t)[0].InvolvedObject.Name)
		assert.Equal(t, uint64(2), s.c.EventsDropped())
	})
}

// A missing right is logged once, for each verb.
func TestMissingRightToWriteEvents(t *testing.T) {
	withEvents(t, func(t *testing.T, s *eventScene) {
		forbidden := func(string) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no"))
		}
		s.answers(forbidden)
		for i := range 5 {
			s.c.QueueEvent(noteOn(fmt.Sprintf("n-%d", i), "HostPoweredOff", "off"))
		}
		time.Sleep(time.Minute)
		assert.Equal(t, 1, s.logged.FilterMessageSnippet("configs/rbac.yaml").Len())
		assert.Equal(t, uint64(5), s.c.EventsDropped())

		s.answers(func(verb string) error { // as with the rights of an older version
			if verb == "patch" {
				return forbidden(verb)
			}
			return nil
		})
		for range 5 {
			s.c.QueueEvent(noteOn("again", "HostPoweredOff", "off"))
			s.c.QueueEvent(noteOn("other", "HostPoweredOff", time.Now().String()))
			time.Sleep(time.Minute)
		}
		assert.Equal(t, 2, s.logged.FilterMessageSnippet("configs/rbac.yaml").Len())
	})
}

// Equal Events are one that is counted. Similar ones are combined, and their number is
// limited for each object and reason.
func TestEventsAreCombined(t *testing.T) {
	withEvents(t, func(t *testing.T, s *eventScene) {
		for range 3 {
			s.c.QueueEvent(noteOn("a", "ActionFailed", "SendOff: the same"))
			time.Sleep(2 * eventDelay)
		}
		require.Len(t, s.written(t), 1)
		assert.Equal(t, int32(3), s.written(t)[0].Count)
		for i := range 100 {
			s.c.QueueEvent(noteOn("b", "ActionFailed", fmt.Sprint("SendOff: ", i)))
			time.Sleep(2 * eventDelay)
		}
		assert.LessOrEqual(t, len(s.written(t)), 1+objectBurst+1)
		s.c.QueueEvent(noteOn("b", "RemediationHeld", "BMCAuth"))
		time.Sleep(2 * eventDelay)
		last := s.written(t)
		assert.Equal(t, "RemediationHeld", last[len(last)-1].Reason, "another reason is not limited with it")
	})
}

func TestExpiredEventIsCreatedAgain(t *testing.T) {
	withEvents(t, func(t *testing.T, s *eventScene) {
		s.c.QueueEvent(noteOn("a", "RemediationWaiting", "PowerOffFailed"))
		time.Sleep(2 * eventDelay)
		e := s.written(t)[0]
		require.NoError(t, s.api.CoreV1().Events(e.Namespace).Delete(t.Context(), e.Name, metav1.DeleteOptions{}))
		s.c.QueueEvent(noteOn("a", "RemediationWaiting", "PowerOffFailed"))
		time.Sleep(2 * eventDelay)
		require.Len(t, s.written(t), 1)
		assert.Zero(t, s.c.EventsDropped())
	})
}

// What an Event quotes is cut to its size and made printable.
func TestEventIsBounded(t *testing.T) {
	n := noteOn("a", "ActionFailed", string(make([]byte, 5000))+"\x1b[31m")
	assert.Len(t, kubernetesEvent(n).Message, maxEventMessage)
	assert.NotContains(t, kubernetesEvent(n).Message, "\x00")
	assert.Equal(t, metav1.NamespaceDefault, kubernetesEvent(n).Namespace, "of an object without a namespace")
	assert.Equal(t, "a", string(kubernetesEvent(n).InvolvedObject.UID))
}

// An Event may quote what others wrote.
func TestEventTextIsPrintable(t *testing.T) {
	text := limitMessage("\x1b[2Jgone\r\n" + strings.Repeat("ä", maxEventMessage))
	assert.LessOrEqual(t, len(text), maxEventMessage)
	assert.NotContains(t, text, "\x1b")
	assert.NotContains(t, text, "\n")
}
