package main

import (
	"github.com/fenced/fenced/internal/config"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/remediate"
)

// guardLimits are the guards of the configuration.
func guardLimits(g config.Guards) guard.Limits {
	return guard.Limits{
		QuietPeriod: g.QuietPeriod, ViewMaxAge: g.ViewMaxAge, ClockSkewMax: g.ClockSkewMax, MinPowerInterval: g.MinPowerInterval,
		MaxInFlight: g.MaxInFlight, MaxInFlightPercent: g.MaxInFlightPercent, MaxInFlightPerZone: g.MaxInFlightPerZone,
		ZoneBreakerPercent: g.ZoneBreakerPercent, ZoneBreakerMin: g.ZoneBreakerMin, MaxFencesPerDay: g.MaxFencesPerDay, ZoneKey: g.ZoneKey,
		MaxInFlightTotal: g.MaxInFlightTotal, StartsPerHour: g.StartsPerHour,
		MaxDeletions: g.MaxDeletions, DeletionsPerHour: g.DeletionsPerHour, DeletionTimeout: g.DeletionTimeout,
	}
}

// runLimits are the deadlines and limits of a run that starts with the configuration.
func runLimits(c config.Config) remediate.Limits {
	g, p := c.Guards, c.Power
	return remediate.Limits{
		OffDeadline: p.OffDeadline, APITimeout: p.APITimeout, PodsGoneTimeout: p.PodsGoneTimeout, OnDeadline: p.OnDeadline,
		ReadyTimeout: p.NodeReadyTimeout, RestoreTimeout: p.RestoreTimeout, RunTimeout: p.RunTimeout, RetryInterval: p.RetryInterval,
		SessionTimeout:   p.SessionTimeout,
		MinPowerInterval: g.MinPowerInterval, MaxAttempts: g.MaxAttempts, PowerOnFoundOff: g.PowerOnFoundOff, ReleasePods: c.ReleasePods,
	}
}

// controlPlaneIsolation is the configured one; auto is the engine's choice.
func controlPlaneIsolation(text string) remediate.Isolation {
	if text == config.IsolationAuto {
		return ""
	}
	return remediate.Isolation(text)
}
