package k8swatch

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

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
