package k8swatch

import (
	"net/http"
	"sync"
	"time"
)

// offset is the difference between an API server's clock and this host's, from
// the last answer with a time. // I16
type offset struct {
	mu   sync.Mutex
	skew time.Duration // the API server's clock minus this host's
	at   time.Time     // time of that answer; zero = none yet
}

// measure uses an answer to a request that was sent at sent. An answer with
// status 500 or above may come from a proxy, which has another clock.
func (o *offset) measure(resp *http.Response, sent, answered time.Time) {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil || resp.StatusCode >= http.StatusInternalServerError {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.skew, o.at = skewOf(date, sent, answered), answered
}

// current returns the offset now; known is false until an answer had a time. A
// change of this host's clock since the last answer is included at once, measured
// by the monotonic clock.
func (o *offset) current(now time.Time) (skew time.Duration, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at.IsZero() {
		return 0, false
	}
	set := now.Round(0).Sub(o.at.Round(0)) - now.Sub(o.at)
	return o.skew - set, true
}

// skewOf returns by how much a server's clock is certainly ahead of ours
// (negative: behind), from the Date of its answer. A difference that the whole
// seconds of Date and the duration of the request can explain counts as zero.
func skewOf(date, sent, answered time.Time) time.Duration {
	switch {
	case date.After(answered):
		return date.Sub(answered)
	case date.Add(time.Second).Before(sent):
		return date.Add(time.Second).Sub(sent)
	}
	return 0
}
