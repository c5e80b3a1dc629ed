package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// beatTime is how long the loops that decide may be silent: systemd's watchdog has the same
// time in the unit.
const beatTime = 30 * time.Second

// health is when the loops that decide had all run last. The zero value has seen no beat.
type health struct{ last atomic.Pointer[time.Time] }

func (h *health) beat() {
	now := time.Now()
	h.last.Store(&now)
}

// problem returns what is wrong with the daemon itself, or an empty string.
func (h *health) problem(now time.Time) string {
	last := h.last.Load()
	if last == nil {
		return "the daemon is starting"
	}
	if silent := now.Sub(*last); silent > beatTime {
		return fmt.Sprintf("no decision for %s: the daemon hangs", silent.Round(time.Second))
	}
	return ""
}

// notReady returns why the daemon could not fence a node now, a line for each cluster. Everybody who can
// connect may read it, so it says no more than the metrics do.
func notReady(clusters []engine.ClusterStatus) string {
	var all []string
	for _, c := range clusters {
		switch {
		case c.ViewBad != "":
			all = append(all, c.Name+": the view of the cluster is not good; fencectl status says why")
		case c.Idle != "":
			all = append(all, c.Name+": no instance may act here; fencectl status says why")
		case c.FilesRefused != "":
			all = append(all, c.Name+": nothing begins here, because a file has an error; fencectl status says why")
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

// notifier tells systemd how the daemon is: READY once, STATUS when its words
// change, WATCHDOG from the deciding loops, so that one that hangs is noticed.
type notifier struct {
	log   *zap.Logger
	every time.Duration // 0 = no watchdog
	// lastBeat has its monotonic time: systemd's watchdog does not wait until a clock that was set back has caught up.
	lastBeat atomic.Pointer[time.Time]
	words    atomic.Value // string
	refused  atomic.Bool  // the last reload was refused
}

func newNotifier(log *zap.Logger) *notifier {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog's interval cannot be read", zap.Error(err))
	}
	return &notifier{log: log, every: every / 3}
}

func (n *notifier) send(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Warn("systemd cannot be notified", zap.Error(err))
	}
}

// beat is called while all deciding loops make progress. A ping goes out a third
// of the interval after the one before.
func (n *notifier) beat() {
	now, last := time.Now(), n.lastBeat.Load()
	if n.every > 0 && (last == nil || now.Sub(*last) >= n.every) && n.lastBeat.CompareAndSwap(last, &now) {
		n.send(daemon.SdNotifyWatchdog)
	}
}

// status sends the words that `systemctl status` shows, when they changed.
func (n *notifier) status(clusters []engine.ClusterStatus) {
	words := statusWords(clusters)
	if n.refused.Load() {
		words += "; the last reload was refused: fencectl status says why"
	}
	if old := n.words.Swap(words); old != words {
		n.send("STATUS=" + wire.Visible(words)) // an end of line in what an API server answers would begin another variable
	}
}

func statusWords(clusters []engine.ClusterStatus) string {
	nodes, open, waiting, held := 0, 0, 0, 0
	var troubles []string // of all clusters: none hides that of another
	for _, c := range clusters {
		nodes += c.Nodes
		for _, r := range c.Runs {
			switch r.Step {
			case remediate.Waiting:
				waiting++
			case remediate.Held:
				held++
			default:
				open++
			}
		}
		trouble := ""
		switch {
		case c.ViewBad != "":
			trouble = "; " + c.Name + ": " + c.ViewBad
		case c.Idle != "":
			trouble = "; " + c.Name + ": " + c.Idle
		case c.FilesRefused != "":
			trouble = "; " + c.Name + ": nothing begins, because a file has an error: " + c.FilesRefused
		case c.Paused != "":
			trouble = "; " + c.Paused
		case !c.Armed:
			trouble = "; " + c.Name + " only observes"
		case !c.Owner:
			trouble = "; " + c.Name + " is with " + c.OwnerName
		}
		if !slices.Contains(troubles, trouble) {
			troubles = append(troubles, trouble)
		}
	}
	return fmt.Sprintf("%d nodes watched, %d runs in flight, %d waiting, %d held%s", nodes, open, waiting, held, strings.Join(troubles, ""))
}

// tell keeps systemd's STATUS line true.
func (d *fenced) tell(ctx context.Context) error {
	status := func() { d.notify.status(d.engine.Status()) }
	status()
	live.Every(ctx, time.Second, nil, status)
	d.notify.send(daemon.SdNotifyStopping)
	return nil
}
