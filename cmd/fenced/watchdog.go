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

// leaveTime bounds the commands to this host's BMC that no loop repeats.
const leaveTime = 5 * time.Second

// pulse counts the joined beats of the deciding loops, for who asks whether there was one.
type pulse struct{ beats, seen atomic.Int64 }

func (p *pulse) beat() { p.beats.Add(1) }

// alive says whether there was a beat since it was asked before.
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

// keep holds the watchdog until ctx ends. Where it is not wanted, one that a killed
// daemon left behind is stopped.
func (o ownBMC) keep(ctx context.Context, status func() []engine.ClusterStatus) error {
	if o.BMC == nil {
		if o.cfg.Enabled {
			o.log.Error("watchdog.enabled is set, but this host's BMC cannot be used: no watchdog is armed", zap.Int("device", o.cfg.Device))
		}
		return nil
	}
	defer o.leave(ctx)
	w := o.Watchdog(o.cfg.Timeout)
	if !o.cfg.Enabled {
		once, cancel := context.WithTimeout(ctx, leaveTime)
		defer cancel()
		if err := w.Release(once); err != nil {
			o.log.Info("this host's watchdog cannot be looked at", zap.Error(err))
		}
		<-ctx.Done()
		return nil
	}
	k := localbmc.Keeper{
		Watchdog: w, Every: o.cfg.Timeout / 4, Root: os.DirFS("/"), Alive: o.pulse.alive,
		Active: func() bool { return mayFence(status()) }, OnChange: o.tell,
	}
	return k.Run(ctx)
}

// leave closes the device. The end of the process does so as well, so that an error
// is only worth a line.
func (o ownBMC) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	if err := o.Close(ctx); err != nil {
		o.log.Info("this host's BMC is left as it is", zap.Error(err))
	}
}

// tell logs a change of the watchdog's state.
func (o ownBMC) tell(held bool, err error) {
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
