package k8swatch

import (
	"net/http"
	"sync"
	"time"
)

// offset is how the clock of an API server stands to this host's, by the last answer that
// told the time. // I16
type offset struct {
	mu   sync.Mutex
	skew time.Duration // the API server's clock minus this host's
	at   time.Time     // when that was; zero = no answer has come yet
}

// measure takes in an answer to a request that was sent then. What fails with 500 or above
// may be a proxy's, which has a clock of its own.
func (o *offset) measure(resp *http.Response, sent, answered time.Time) {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || resp.StatusCode >= http.StatusInternalServerError {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.skew, o.at = skewOf(date, sent, answered), answered
}

// by is the offset now; known is false while no answer has told the time. By how much this
// host's clock was set since the last answer shows at once: its monotonic clock was not.
func (o *offset) by(now time.Time) (skew time.Duration, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at.IsZero() {
		return 0, false
	}
	set := now.Round(0).Sub(o.at.Round(0)) - now.Sub(o.at)
	return o.skew - set, true
}

// skewOf is how far a server's clock is surely ahead of ours (behind: negative), by the
// Date of its answer, which has whole seconds. What these and the way of the request
// explain is no skew.
func skewOf(date, sent, answered time.Time) time.Duration {
	switch {
	case date.After(answered):
		return date.Sub(answered)
	case date.Add(time.Second).Before(sent):
		return date.Add(time.Second).Sub(sent)
	}
	return 0
}
