package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/history"
	"github.com/fenced/fenced/internal/wire"
)

// Audit implements api.Daemon. It reads the files as anybody would, and takes no lock of their writer.
func (c control) Audit(ctx context.Context, q audit.Query, entry func(audit.Entry) error, broken func(audit.Break) error) error {
	return audit.Select(ctx, c.audit.path, q, entry, broken)
}

// Report implements api.Daemon. It reads the log from its beginning, because what was so before the period is told there: the mode, a
// refusal that lasts.
func (c control) Report(ctx context.Context, cluster string, since, until time.Time) (wire.PeriodReport, error) {
	if err := c.checkCluster(cluster); err != nil {
		return wire.PeriodReport{}, err
	}
	h := history.New(history.Period{Since: since, Until: until, Cluster: cluster})
	err := audit.Select(ctx, c.audit.path, audit.Query{}, func(e audit.Entry) error { h.Add(e); return nil }, func(b audit.Break) error { h.AddBreak(b); return nil })
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return wire.PeriodReport{}, &api.Error{Status: http.StatusGatewayTimeout, Code: api.CodeTimeout, Message: "the audit log is too long to be read in time",
			Hint: "take old files of it away, as docs/audit-log.md says"}
	case err != nil:
		return wire.PeriodReport{}, fmt.Errorf("read the audit log: %w", err)
	}
	return h.Report(c.now(ctx, cluster)), nil
}

// now is what the state and the last looks say beside the log.
func (c control) now(ctx context.Context, cluster string) (out history.Now) {
	for _, cs := range c.engine.Status() {
		if cluster == "" || cs.Name == cluster {
			out.Blocked = append(out.Blocked, blockedIn(cs)...)
		}
	}
	for _, r := range c.engine.Runs(cluster) {
		out.Runs = append(out.Runs, c.record(r))
	}
	if devices, err := c.BMCs(ctx, wire.BMCFilter{Cluster: cluster}); err == nil { // else none is known yet
		out.BMCs = devices.Count()
	}
	return out
}
