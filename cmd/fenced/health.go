package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fenced/fenced/internal/engine"
)

// beatTime is how long the loops that decide may be silent: systemd's watchdog has the same
// time in the unit.
const beatTime = 30 * time.Second

// health is when the loops that decide had all run last. The zero value has seen no beat.
type health struct{ last atomic.Int64 }

func (h *health) beat() { h.last.Store(time.Now().UnixNano()) }

// problem is what is wrong with the daemon itself, "" for nothing.
func (h *health) problem(now time.Time) string {
	last := h.last.Load()
	if last == 0 {
		return "the daemon is starting"
	}
	if silent := now.Sub(time.Unix(0, last)); silent > beatTime {
		return fmt.Sprintf("no decision for %s: the daemon hangs", silent.Round(time.Second))
	}
	return ""
}

// notReady is why the daemon could not fence a node now, a line for each cluster. Everybody who can
// connect may read it, so it says no more than the metrics do.
func notReady(clusters []engine.ClusterStatus) string {
	var all []string
	for _, c := range clusters {
		switch {
		case c.ViewBad != "":
			all = append(all, c.Name+": the view of the cluster is not good; fencectl status says why")
		case c.Idle != "":
			all = append(all, c.Name+": no instance may act here; fencectl status says why")
		}
	}
	return strings.Join(all, "\n")
}

// pages are what metrics.listen serves: the metrics, and /healthz and /readyz for monitors that do
// not read metrics.
func (d *fenced) pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	mux.Handle("GET /healthz", answer(func() string { return d.health.problem(time.Now()) }))
	mux.Handle("GET /readyz", answer(func() string {
		if p := d.health.problem(time.Now()); p != "" {
			return p
		}
		return notReady(d.engine.Status())
	}))
	return mux
}

// answer is 200 and ok, or 503 and the problem.
func answer(problem func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		text := problem()
		if text == "" {
			text = "ok"
		} else {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, text)
	}
}

// beat is called at least every second while the deciding loop of every cluster makes progress.
func (d *fenced) beat() {
	d.notify.beat()
	d.own.pulse.beat()
	d.health.beat()
}
