package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"
)

// scrapeRetry is the pause between two attempts to listen on an address that is in use.
const scrapeRetry = 2 * time.Second

// maxScrapes is how many connections are open at a time. Any user of the host can connect, and who takes a descriptor leaves one less for
// the BMCs and the API server.
const maxScrapes = 64

// scrapeDoor serves the metrics. Any user of the host can take its port first: that is logged,
// and nothing else depends on it.
type scrapeDoor struct {
	addr string
	log  *zap.Logger
	ln   net.Listener // nil while somebody else listens there
	told bool
}

// openMetrics listens before the daemon is ready, so that the metrics can be read from then on.
func openMetrics(addr string, log *zap.Logger) *scrapeDoor {
	d := &scrapeDoor{addr: addr, log: log}
	d.open()
	return d
}

func (d *scrapeDoor) open() {
	ln, err := net.Listen("tcp", d.addr)
	switch {
	case err != nil:
		d.logOnce(err)
	case d.told:
		d.told = false
		d.log.Info("metrics are served again", zap.String("address", d.addr))
	}
	d.ln = ln
}

// logOnce logs that the metrics are not served, once until they are served again.
func (d *scrapeDoor) logOnce(err error) {
	if !d.told {
		d.log.Warn("metrics are not served, which is tried again; fencing does not depend on them", zap.String("address", d.addr), zap.Error(err))
	}
	d.told = true
}

// keep answers scrapes until ctx ends.
func (d *scrapeDoor) keep(ctx context.Context, pages http.Handler) error {
	for {
		if d.ln != nil {
			if err := serveScrapes(ctx, d.ln, pages); ctx.Err() == nil {
				d.logOnce(err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(scrapeRetry):
		}
		d.open()
	}
}

// serveScrapes answers scrapes until ctx ends, or until the listener fails.
func serveScrapes(ctx context.Context, ln net.Listener, pages http.Handler) error {
	s := &http.Server{Handler: pages, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // a scrape cut short is no loss
	defer stop()
	return s.Serve(netutil.LimitListener(ln, maxScrapes))
}
