package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
)

// notifier tells systemd how the daemon is: READY once, STATUS when its words
// change, WATCHDOG from the deciding loops, so that one that hangs is noticed.
type notifier struct {
	log      *zap.Logger
	every    time.Duration // 0 = no watchdog
	lastBeat atomic.Int64
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
	now, last := time.Now().UnixNano(), n.lastBeat.Load()
	if n.every > 0 && now-last >= int64(n.every) && n.lastBeat.CompareAndSwap(last, now) {
		n.send(daemon.SdNotifyWatchdog)
	}
}

// reloading tells systemd that a reload begins; reloaded must follow.
func (n *notifier) reloading() {
	n.send(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// reloaded tells systemd that the reload has ended.
func (n *notifier) reloaded() { n.send(daemon.SdNotifyReady) }

// reloadRefused notes whether the last reload was refused, which the status says.
func (n *notifier) reloadRefused(refused bool) { n.refused.Store(refused) }

// status sends the words that `systemctl status` shows, when they changed.
func (n *notifier) status(clusters []engine.ClusterStatus) {
	words := statusWords(clusters)
	if n.refused.Load() {
		words += "; the last reload was refused: see the journal"
	}
	if old := n.words.Swap(words); old != words {
		n.send("STATUS=" + words)
	}
}

func statusWords(clusters []engine.ClusterStatus) string {
	nodes, open, waiting, held, trouble := 0, 0, 0, 0, ""
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
		switch {
		case c.ViewBad != "":
			trouble = "; " + c.Name + ": " + c.ViewBad
		case c.Idle != "":
			trouble = "; " + c.Name + ": " + c.Idle
		case c.Paused != "":
			trouble = "; " + c.Paused
		case !c.Armed:
			trouble = "; " + c.Name + " only observes"
		case !c.Owner:
			trouble = "; " + c.Name + " is with " + c.OwnerName
		}
	}
	return fmt.Sprintf("%d nodes watched, %d runs in flight, %d waiting, %d held%s", nodes, open, waiting, held, trouble)
}

// tell keeps systemd's STATUS line true.
func (d *fenced) tell(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		d.notify.status(d.engine.Status())
		select {
		case <-ctx.Done():
			d.notify.send(daemon.SdNotifyStopping)
			return nil
		case <-tick.C:
		}
	}
}
