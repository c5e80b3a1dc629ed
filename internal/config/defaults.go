package config

import "time"

// ViewGroup is the group of those who may look. The daemon's own group reads every
// password.
const ViewGroup = "fenced-view"

// Default is a Config with every default and no cluster.
func Default() Config {
	return Config{
		Hosts:    "/etc/fenced/hosts.d",
		Policies: "/etc/fenced/policies.d",
		State:    State{Engine: "bbolt", Path: "/var/lib/fenced/state.db", Etcd: Etcd{Prefix: "/fenced/"}},
		Control: Control{
			Socket: "/run/fenced/fenced.sock", Group: ViewGroup, Roles: Roles{Viewer: []string{"group:" + ViewGroup}}, PauseFile: "/var/lib/fenced/paused",
		},
		Metrics: Metrics{Listen: "127.0.0.1:9870"},
		Log:     Log{Level: "info"},
		Guards: Guards{
			QuietPeriod:        300 * time.Second,
			MaxInFlight:        5,
			MaxInFlightPercent: 10,
			MaxInFlightPerZone: 1,
			MaxInFlightTotal:   20,
			StartsPerHour:      30,
			MaxDeletions:       1,
			DeletionsPerHour:   30,
			DeletionTimeout:    30 * time.Minute,
			ZoneKey:            "topology.kubernetes.io/zone",
			ZoneBreakerPercent: 55,
			ZoneBreakerMin:     3,
			MinPowerInterval:   180 * time.Second,
			MaxAttempts:        3,
			MaxFencesPerDay:    3,
			ViewMaxAge:         60 * time.Second,
			ClockSkewMax:       5 * time.Second,
			ControlPlane:       ControlPlaneQuorum,
			PowerOnFoundOff:    true,
			Identity:           "required",
		},
		Power: Power{
			ReadTimeout:      5 * time.Second,
			OffDeadline:      60 * time.Second,
			OffReadSpacing:   3 * time.Second,
			OnDeadline:       180 * time.Second,
			APITimeout:       120 * time.Second,
			PodsGoneTimeout:  70 * time.Second,
			RestoreTimeout:   10 * time.Minute,
			RunTimeout:       2 * time.Hour,
			NodeReadyTimeout: 20 * time.Minute,
			SessionTimeout:   60 * time.Second,
			RetryInterval:    time.Minute,
		},
		Sweep:                 Sweep{Interval: 60 * time.Second},
		Watchdog:              Watchdog{Timeout: 60 * time.Second},
		Isolation:             "deleteNode",
		ControlPlaneIsolation: IsolationAuto,
	}
}

// setDefaults is how the reader begins each element of the list.
func (c *Cluster) setDefaults() { *c = Cluster{Mode: ModeEvaluate, Reprovision: true} }
