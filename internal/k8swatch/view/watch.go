package view

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fenced/fenced/internal/k8swatch/client"
)

const (
	retryMin = 250 * time.Millisecond
	retryMax = 5 * time.Second
	// watchBeyond is how much longer a watch lasts than the interval of freshness
	// reads. An API server sends a bookmark 2 s before a watch ends and otherwise
	// once a minute. With short watches it reports its version in each interval,
	// even for a kind without changes. // I16
	watchBeyond = 2 * time.Second
	// A watch that the API server does not end in time is restarted: withheld
	// events would otherwise look like a cluster without changes.
	listTimeout   = time.Minute     // for one page
	streamTimeout = 5 * time.Minute // for a streamed list
	watchGrace    = 10 * time.Second
	// maxPages limits a list: a server could always announce another page.
	maxPages = 1000
)

// errTooManyPages: the list is longer than that of any cluster.
var errTooManyPages = fmt.Errorf("the list has more than %d objects", maxPages*client.PageSize)

// errNotListed makes a reflector list all objects again: the kind was away, and a watch
// does not tell again what has not changed since. // I16
var errNotListed = apierrors.NewResourceExpired("the kind was away, and must be listed first")

// watch lists and watches a store's kind until ctx ends.
func (s *store) watch(ctx context.Context, cl *client.Conn, g *sync.WaitGroup) {
	var expected any = &unstructured.Unstructured{}
	switch {
	case s.pods():
		expected = &corev1.Pod{}
	case s.builtIn():
		expected = &corev1.Node{}
	}
	r := cache.NewReflectorWithOptions(s.listWatch(cl), expected, s, cache.ReflectorOptions{
		Name: s.side.c.cfg.Name + "/" + s.Kind, Logger: &klog.Logger{},
		Backoff: &wait.Backoff{Duration: retryMin, Factor: 2, Jitter: 0.5, Steps: 6, Cap: retryMax},
	})
	r.WatchListPageSize = client.PageSize
	g.Go(func() { r.RunWithContext(ctx) })
}

// listWatch lists and watches a store's kind and records the results.
func (s *store) listWatch(cl *client.Conn) *cache.ListWatch {
	turn := int64((s.side.c.cfg.FreshEvery + watchBeyond).Round(time.Second).Seconds())
	pages := 0      // a reflector requests one page at a time
	s.absence.end() // it may have been that of another API server, or of another history
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			s.absence.await(ctx)
			if pages++; o.Continue == "" {
				pages = 1
			}
			if pages > maxPages {
				s.fail(errTooManyPages.Error())
				return nil, errTooManyPages
			}
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			if o.ResourceVersion == "0" { // the API server's cache, complete and of any age
				o.ResourceVersion = ""
			}
			return s.list(ctx, cl, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			s.absence.await(ctx)
			streams := o.SendInitialEvents != nil && *o.SendInitialEvents
			if !streams && s.version() == 0 {
				return nil, errNotListed
			}
			ends := streamTimeout
			if !streams {
				o.TimeoutSeconds, ends = &turn, time.Duration(turn)*time.Second+watchGrace
			}
			asked := time.Now()
			gvr, err := s.at(ctx)
			var w watch.Interface
			if err == nil {
				w, err = s.watchAt(ctx, cl, gvr, o)
			}
			s.note(ctx, err, asked)
			if err != nil {
				return nil, err
			}
			w = newStoppedWatch(w)
			time.AfterFunc(ends, w.Stop)
			if streams {
				s.streamed(w)
			}
			return w, nil
		},
	}
}

// absence is the time in which a cluster is known not to have a kind. The periodic
// reads find out whether it was added, so its watch need not ask, too: these were
// most of the requests to a cluster without Machines.
type absence struct {
	mu    sync.Mutex
	ended chan struct{} // nil while it does not last
}

func (a *absence) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended == nil {
		a.ended = make(chan struct{})
	}
}

// end lets the watch of the kind try again: nobody knows any more that the cluster
// does not have it.
func (a *absence) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		close(a.ended)
		a.ended = nil
	}
}

func (a *absence) lasts() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended != nil
}

// await returns when the kind may be there, or ctx has ended.
func (a *absence) await(ctx context.Context) {
	a.mu.Lock()
	ended := a.ended
	a.mu.Unlock()
	if ended == nil {
		return
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
}

// list lists the kind where it is served, and records the result.
func (s *store) list(ctx context.Context, cl *client.Conn, o metav1.ListOptions) (runtime.Object, error) {
	asked := time.Now()
	gvr, err := s.at(ctx)
	var list runtime.Object
	if err == nil {
		list, err = s.listAt(ctx, cl, gvr, o)
	}
	s.note(ctx, err, asked)
	return list, err
}

// at is where the kind is served, as far as known.
func (s *store) at(ctx context.Context) (schema.GroupVersionResource, error) {
	s.mu.Lock()
	gvr := s.gvr
	s.mu.Unlock()
	if s.builtIn() || gvr.Resource != "" {
		return gvr, nil
	}
	gvr, err := s.side.Find(ctx, s.Resource)
	if err == nil {
		s.mu.Lock()
		s.gvr = gvr
		s.mu.Unlock()
	}
	return gvr, err
}

// note records the result of a request. A kind that discovery does not list
// counts as empty, even without rights to it. A kind that moved to another
// version is read there from now on.
func (s *store) note(ctx context.Context, err error, asked time.Time) {
	switch {
	case err == nil:
		s.absence.end()
		return
	case ctx.Err() == context.Canceled:
		return
	case errors.Is(err, client.ErrNotInstalled):
		s.recordNotInstalled(asked)
		return
	case !s.builtIn() && apierrors.IsForbidden(err) && s.side.IsNotServed(ctx, s.Resource):
		s.recordNotInstalled(asked)
		return
	case s.builtIn() || !apierrors.IsNotFound(err):
		s.failAt(s.levelOf(ctx, err), err.Error())
		return
	}
	was, _ := s.at(ctx)
	now, find := s.side.Find(ctx, s.Resource)
	switch {
	case errors.Is(find, client.ErrNotInstalled):
		s.recordNotInstalled(asked)
	case find != nil && ctx.Err() != context.Canceled:
		s.fail(find.Error())
	case find == nil && now == was:
		s.fail(was.String() + " is listed by the API, but not served") // it is being added or removed
	case find == nil:
		s.mu.Lock()
		s.gvr = now
		s.mu.Unlock()
		s.fail("the kind has moved from " + was.Version + " to " + now.Version)
	}
}

// levelOf returns how loud a failure is logged. While the API server is away, the warning about the
// Nodes tells it, and nobody knows which other kinds it serves: no kind warns that may not exist.
func (s *store) levelOf(ctx context.Context, err error) zapcore.Level {
	if s.builtIn() {
		return zapcore.WarnLevel
	}
	var answer apierrors.APIStatus
	if _, find := s.side.Find(ctx, s.Resource); find != nil || !errors.As(err, &answer) {
		return zapcore.InfoLevel
	}
	return zapcore.WarnLevel
}

// streamed records the watch that streams a list.
func (s *store) streamed(w watch.Interface) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream = w
}

// endStream soon ends the watch that streamed the list. It would continue as a
// long watch, with a bookmark only every minute. The reflector treats a watch
// that ends within its first second as an error. s.mu is held.
func (s *store) endStream() {
	if w := s.stream; w != nil {
		s.stream = nil
		time.AfterFunc(watchBeyond, w.Stop)
	}
}

// stoppedWatch is a watch that ends without an error when it is stopped. The client's own sends,
// as often as not, that it could not read the stream any more. A reflector takes that for an error
// of the API server, and lists all objects again.
type stoppedWatch struct {
	watch   watch.Interface
	results chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

func newStoppedWatch(w watch.Interface) *stoppedWatch {
	s := &stoppedWatch{watch: w, results: make(chan watch.Event), stopped: make(chan struct{})}
	go s.pass()
	return s
}

// pass passes events on until the watch ends or is stopped. An event that is not passed on is not
// lost: the reflector watches on from the last one that it received.
func (s *stoppedWatch) pass() {
	defer close(s.results)
	for e := range s.watch.ResultChan() {
		select {
		case <-s.stopped: // before the next select, which would choose at random
			return
		default:
		}
		select {
		case <-s.stopped:
			return
		case s.results <- e:
		}
	}
}

// ResultChan implements watch.Interface.
func (s *stoppedWatch) ResultChan() <-chan watch.Event { return s.results }

// Stop implements watch.Interface.
func (s *stoppedWatch) Stop() {
	s.stop.Do(func() { close(s.stopped) })
	s.watch.Stop()
}
