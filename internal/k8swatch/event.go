package k8swatch

import (
	"cmp"
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record/util"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
)

// maxEventMessage is the longest message of an Event that the API server accepts.
const maxEventMessage = 1024

// reporter is the component that reports the Events.
const reporter = "fenced"

// Events writes the Events about the objects of a cluster.
type Events struct {
	servers      *client.Servers
	work, manage *eventWriter // the same if there is only one API
}

// NewEvents returns what writes Events while DeliverEvents runs.
func NewEvents(s *client.Servers) *Events {
	e := &Events{servers: s, work: newEventWriter(s.Work)}
	if e.manage = e.work; s.Manage != s.Work {
		e.manage = newEventWriter(s.Manage)
	}
	return e
}

// DeliverEvents writes what is queued, until ctx ends.
func (w *Events) DeliverEvents(ctx context.Context) {
	var g sync.WaitGroup
	g.Go(func() { w.work.run(ctx) })
	if w.manage != w.work {
		g.Go(func() { w.manage.run(ctx) })
	}
	g.Wait()
}

// QueueEvent queues an Event about an object of the cluster, for the API server that has the
// object. It never waits. While the API server does not answer, the oldest Events are
// dropped once too many are queued.
func (w *Events) QueueEvent(e event.KubeEvent) {
	if e.OnManagementAPI || w.servers.Of(e.APIVersion) == w.servers.Manage {
		w.manage.put(e)
		return
	}
	w.work.put(e)
}

// EventsDropped is how many Events were not written: too many were queued, they grew too
// old, there were too many about one object, or the API server refused them.
func (w *Events) EventsDropped() uint64 {
	if w.manage == w.work {
		return w.work.dropped.Load()
	}
	return w.work.dropped.Load() + w.manage.dropped.Load()
}

// kubernetesEvent is the Event as the API has it. An Event about an object without a namespace is
// in "default": the API server accepts no other. Its name has the kind, because a Machine and the
// request for it have one name, and are told at the same moment.
func kubernetesEvent(n event.KubeEvent) *corev1.Event {
	at := metav1.NewTime(n.At)
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(n.Namespace, metav1.NamespaceDefault),
			Name:      util.GenerateEventName(n.Name+"."+strings.ToLower(n.Kind), n.At.UnixNano()),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: n.APIVersion, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name, UID: types.UID(n.UID),
		},
		Type: corev1.EventTypeNormal, Reason: n.Reason, Message: limitMessage(n.Message),
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source: corev1.EventSource{Component: reporter}, ReportingController: reporter,
	}
	if n.Warning {
		e.Type = corev1.EventTypeWarning
	}
	return e
}

// limitMessage cuts a text to the size of an Event, between characters, and makes
// it printable: it may quote texts of others, and people read it on a terminal.
func limitMessage(text string) string { return bmc.Printable(text, maxEventMessage) }
