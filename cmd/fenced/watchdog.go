package main

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/localbmc"
	"github.com/fenced/fenced/internal/remediate"
)

// closeTime bounds the commands to this host's BMC that no loop repeats.
const closeTime = 5 * time.Second

// pulse counts the beats of the deciding loops. A beat means that all of them made progress.
type pulse struct{ beats, seen atomic.Int64 }

func (p *pulse) beat() { p.beats.Add(1) }

// alive says whether there was a beat since the last call.
func (p *pulse) alive() bool {
	n := p.beats.Load()
	return p.seen.Swap(n) != n
}

// ownBMC is this host's BMC with its watchdog; nil without one.
type ownBMC struct {
	*localbmc.BMC
	cfg   config.Watchdog
	pulse *pulse
	log   *zap.Logger
}

// keep holds the watchdog until ctx ends. If no watchdog is configured, it stops the one that a
// killed daemon may have left running.
func (o ownBMC) keep(ctx context.Context, status func() []engine.ClusterStatus) error {
	if o.BMC == nil {
		if o.cfg.Enabled {
			o.log.Error("watchdog.enabled is set, but this host's BMC cannot be used: no watchdog is armed", zap.Int("device", o.cfg.Device))
		}
		return nil
	}
	defer o.close(ctx)
	w := o.Watchdog(o.cfg.Timeout)
	if !o.cfg.Enabled {
		once, cancel := context.WithTimeout(ctx, closeTime)
		defer cancel()
		if err := w.Release(once); err != nil {
			o.log.Info("this host's watchdog cannot be looked at", zap.Error(err))
		}
		<-ctx.Done()
		return nil
	}
	k := localbmc.Keeper{
		Watchdog: w, Every: o.cfg.Timeout / 4, Root: os.DirFS("/"), Alive: o.pulse.alive,
		Active: func() bool { return mayFence(status()) }, OnChange: o.logChange,
	}
	return k.Run(ctx)
}

// close closes the device. The end of the process closes it as well, so an error is only logged.
func (o ownBMC) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if err := o.Close(ctx); err != nil {
		o.log.Info("this host's BMC is left as it is", zap.Error(err))
	}
}

// logChange logs a change of the watchdog's state.
func (o ownBMC) logChange(held bool, err error) {
	switch {
	case err != nil:
		o.log.Error("this host's watchdog", zap.Error(err))
	case held:
		o.log.Warn("this host's watchdog is armed: this host is powered down when the daemon hangs or is killed",
			zap.Duration("timeout", o.cfg.Timeout))
	default:
		o.log.Info("this host's watchdog is not armed: this daemon may fence nothing")
	}
}

// mayFence says whether fenced acts by itself in some cluster, or has a run that acts.
func mayFence(clusters []engine.ClusterStatus) bool {
	for _, c := range clusters {
		if c.Armed {
			return true
		}
		for _, r := range c.Runs {
			if r.Step != remediate.Held {
				return true
			}
		}
	}
	return false
}
