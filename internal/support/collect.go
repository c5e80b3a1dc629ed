package support

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fenced/fenced/internal/api"
)

// journalLines is how many lines of the journal a bundle has at most.
const journalLines = 2000

// Options are whom to ask, and where.
type Options struct {
	Client  *api.Client
	Cluster string // only this one; empty: all
	Config  string // fenced.yaml
	Daemon  string // the program fenced
	Version string // of fencectl
}

// Result is what a bundle holds.
type Result struct {
	Parts []Part `json:"parts"`
	// Daemon is why the daemon answered nothing; empty if it did.
	Daemon string `json:"daemonProblem,omitempty"`
}

// collector writes one bundle.
type collector struct {
	*bundle
	Options
}

// Collect writes a bundle. Its error is one of writing: what cannot be read is a part with a problem.
func Collect(ctx context.Context, o Options, w io.Writer) (Result, error) {
	began := time.Now().UTC()
	c := collector{newBundle(w, began), o}
	limited, cancel := context.WithTimeout(ctx, wholeTime)
	defer cancel()
	c.versions(limited)
	var r Result
	head := "the daemon answered"
	if err := c.askDaemon(limited); err != nil {
		r.Daemon = oneLine(err.Error())
		head = "the daemon did not answer, so its parts are missing: " + r.Daemon
	}
	cfg := c.configuration(limited)
	c.metrics(limited, cfg.Metrics.Listen)
	c.unitAndJournal(limited)
	c.auditHead(limited, cfg.AuditPath())
	if ctx.Err() != nil { // whoever asked for it has gone
		return r, fmt.Errorf("collect the parts: %w", ctx.Err())
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	r.Parts = c.parts
	return r, c.close(fmt.Sprintf("support bundle of fenced on %s, %s, by uid %d\n%s", oneLine(host), began.Format(time.RFC3339), os.Getuid(), head))
}
