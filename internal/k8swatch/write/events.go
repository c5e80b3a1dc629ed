package write

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/k8swatch/client"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/times"
)

// Events must never be in the way of a write that fences: they begin a second late, one is
// written at a time, few in a second, and what waits is bounded in number and age.
const (
	// eventDelay is how long the first Event after a pause waits. When many targets fail at the
	// same moment, most runs have sent their first writes by then.
	eventDelay      = time.Second
	maxQueuedEvents = 512
	// maxEventAge is how long an API server keeps an Event by default.
	maxEventAge   = time.Hour
	eventsPerSec  = 5
	eventBurst    = 25
	eventRetry    = time.Second // after an API server that did not answer, doubled each time
	eventRetryMax = 30 * time.Second
	// About one object and for one reason, burst Events are written at once, and then one in
	// the interval. After ten different messages in ten minutes, client-go combines them.
	objectBurst    = 10
	objectInterval = 5 * time.Minute
	// objectsKnown is of how many objects and reasons this is counted.
	objectsKnown = 4096
)

// eventWriter writes the Events about the objects of one API server, in the order in which
// they happened. Package record of client-go combines equal and similar ones.
type eventWriter struct {
	api     func(namespace string) eventAPI
	log     *zap.Logger
	similar *record.EventCorrelator
	limit   flowcontrol.RateLimiter
	wake    chan struct{}
	dropped atomic.Uint64
	refused event.ToldOf[string, bool] // that a verb is; run alone uses it

	mu    sync.Mutex
	queue []event.KubeEvent // the oldest first
}

// eventAPI is what a writer of Events needs.
type eventAPI interface {
	Create(ctx context.Context, e *corev1.Event, o metav1.CreateOptions) (*corev1.Event, error)
	Patch(ctx context.Context, name string, p types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*corev1.Event, error)
}

func newEventWriter(s *client.Server) *eventWriter {
	return &eventWriter{
		api: func(namespace string) eventAPI { return s.API().Typed.Events(namespace) }, log: s.Log, wake: make(chan struct{}, 1), limit: flowcontrol.NewTokenBucketRateLimiter(eventsPerSec, eventBurst),
		similar: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
			LRUCacheSize: objectsKnown, BurstSize: objectBurst, QPS: float32(1 / objectInterval.Seconds()), SpamKeyFunc: spamKey,
		}),
	}
}

// spamKey is what is limited together. The reason is part of it, so that one that comes
// again and again does not use up what another needs.
func spamKey(e *corev1.Event) string {
	o := e.InvolvedObject
	return o.APIVersion + " " + o.Kind + " " + o.Namespace + "/" + o.Name + " " + string(o.UID) + " " + e.Reason
}

// put queues an Event. It never waits.
func (w *eventWriter) put(n event.KubeEvent) {
	w.mu.Lock()
	if len(w.queue) == maxQueuedEvents {
		w.queue = append(w.queue[:0], w.queue[1:]...)
		w.dropped.Add(1)
	}
	w.queue = append(w.queue, n)
	w.mu.Unlock()
	live.Signal(w.wake)
}

// take removes the oldest Event from the queue.
func (w *eventWriter) take() (n event.KubeEvent, found bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return event.KubeEvent{}, false
	}
	n = w.queue[0]
	w.queue = append(w.queue[:0], w.queue[1:]...)
	return n, true
}

// run writes until ctx ends. What is still queued then is lost.
func (w *eventWriter) run(ctx context.Context) {
	for ctx.Err() == nil {
		n, found := w.take()
		if !found {
			select {
			case <-ctx.Done():
			case <-w.wake:
				live.Sleep(ctx, eventDelay)
			}
			continue
		}
		if !w.deliver(ctx, n) && ctx.Err() == nil {
			w.dropped.Add(1)
		}
	}
}

// deliver writes one Event. While the API server does not answer it tries again, until the
// Event is too old. It returns whether the Event was written.
func (w *eventWriter) deliver(ctx context.Context, n event.KubeEvent) bool {
	result, err := w.similar.EventCorrelate(kubernetesEvent(n))
	if err != nil || result.Skip {
		return false
	}
	var failed times.Backoff
	for {
		if time.Since(n.At) > maxEventAge || w.limit.Wait(ctx) != nil {
			return false
		}
		written, verb, err := w.write(ctx, result)
		if err == nil {
			w.refused.News(verb, false)
			w.similar.UpdateState(written)
			return true
		}
		if w.isFinal(verb, err) {
			return false
		}
		failed = failed.After(time.Now(), eventRetry, eventRetryMax)
		live.Sleep(ctx, time.Until(failed.Next)) // the limit ends with ctx, too
	}
}

// write creates an Event, or counts up the one that was written before. The latter may have
// expired.
func (w *eventWriter) write(ctx context.Context, r *record.EventCorrelateResult) (written *corev1.Event, verb string, err error) {
	ctx, cancel := context.WithTimeout(client.WithoutRetry(ctx), client.RequestTimeout)
	defer cancel()
	api := w.api(r.Event.Namespace)
	if r.Event.Count > 1 {
		written, err = api.Patch(ctx, r.Event.Name, types.StrategicMergePatchType, r.Patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return written, "patch", err
		}
	}
	e := r.Event.DeepCopy()
	e.ResourceVersion = "" // of the expired one
	written, err = api.Create(ctx, e, metav1.CreateOptions{})
	return written, "create", err
}

// isFinal reports whether another try is in vain: the API server refused the Event. It logs
// a missing right once.
func (w *eventWriter) isFinal(verb string, err error) bool {
	var construction *rest.RequestConstructionError
	switch {
	case errors.As(err, &construction):
	case client.IsRefused(err), apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
	default:
		return false
	}
	if apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && w.refused.News(verb, true) {
		w.log.Warn("Kubernetes Events cannot be written, which delays no fencing: "+
			"give fenced the rights to create and patch events, as configs/rbac.yaml does", zap.Error(err))
	}
	return true
}

// maxEventMessage is the longest message of an Event that the API server accepts.
const maxEventMessage = 1024

// reporter is the component that reports the Events: people read and select it. controller is its name with a
// domain, as the API of Events wants it.
const (
	reporter   = "fenced"
	controller = "fenced.io/fenced"
)

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
		Source: corev1.EventSource{Component: reporter}, ReportingController: controller, ReportingInstance: n.Instance, Action: n.Action,
	}
	if n.Warning {
		e.Type = corev1.EventTypeWarning
	}
	return e
}

// limitMessage cuts a text to the size of an Event, between characters, and makes
// it printable: it may quote texts of others, and people read it on a terminal.
func limitMessage(text string) string { return bmc.Printable(text, maxEventMessage) }
