package run

import (
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// failureEvery is the time between two reports of failed reads of one run: a BMC may answer every
// other read.
const failureEvery = time.Minute

// readFailure remembers how reads of one kind fail, so that it is reported once per change.
type readFailure struct {
	failing bool
	code    reason.Code
	at      time.Time // of the last report
}

// report emits that a read of a run failed, if that is new. A nil err means that it succeeded.
func (f *readFailure) report(w *worker, code reason.Code, err error) {
	now := time.Now()
	switch {
	case err == nil:
		f.failing = false
	case f.failing && f.code == code, !f.at.IsZero() && now.Sub(f.at) < failureEvery:
	default:
		*f = readFailure{failing: true, code: code, at: now}
		w.emit(event.Event{Type: event.Failed, Reason: code, Message: reason.Sentence(err)})
	}
}

// lookReason is the reason code of a look at the cluster that failed.
func lookReason(api remediate.APIState) reason.Code {
	switch api {
	case remediate.APIForbidden:
		return reason.APIForbidden
	case remediate.APIUnreachable:
		return reason.APIUnreachable
	}
	return ""
}
