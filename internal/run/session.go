package run

import (
	"context"
	"reflect"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// opening puts a session with the BMC on the record before it is opened, so that a process that
// resumes the run knows that this one may have left it open. An error says that too many were left:
// the BMC is not asked then. If the record cannot be saved, the session is opened all the same.
func (w *worker) opening(ctx context.Context) error {
	next := w.run
	var refused error
	next.Sessions, refused = w.run.OpenSession(!w.hadSession, time.Now().UTC())
	if !reflect.DeepEqual(next.Sessions, w.run.Sessions) { // not by commit: the look that may find a wrong clock is still to come // I16
		if saved, err := w.r.opt.Cluster.Save(context.WithoutCancel(ctx), next); err == nil {
			w.run = saved
		}
	}
	if refused != nil {
		return &bmc.Error{Kind: bmc.KindSessions, Op: "open a session", Addr: w.run.Target.Address, Err: refused}
	}
	w.hadSession = true
	return nil
}
