package upgrade_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
)

// The files of a daemon, beside each other in one directory.
const (
	stateFile = "state.db"
	auditFile = "audit.log"
	headFile  = "audit.log.head" // which the audit log's writer keeps
)

// daemon is fenced as far as its files go: the engine over the state file, with the audit
// log as its record.
type daemon struct {
	*engine.Engine
	dir   string
	store state.Store
	id    string // of the store
	log   *audit.Log
	stop  func()
}

// start opens both files in dir and runs the engine over the world.
func start(t *testing.T, w *world, dir string) *daemon {
	t.Helper()
	store, err := boltstore.Open(filepath.Join(dir, stateFile))
	require.NoError(t, err)
	require.NoError(t, state.CheckComplete(t.Context(), store))
	id, err := state.ID(t.Context(), store)
	require.NoError(t, err)
	log, err := audit.Open(filepath.Join(dir, auditFile), audit.Options{Origin: audit.Origin{Version: "test", Host: instance, Store: id}})
	require.NoError(t, err)
	d := &daemon{dir: dir, store: store, id: id, log: log}
	d.Engine, err = engine.New(t.Context(), d.options(w))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var passing sync.WaitGroup
	go func() { ended <- d.Run(ctx, func() {}) }()
	passing.Go(func() { w.run(ctx) })
	var once sync.Once
	d.stop = func() {
		once.Do(func() {
			cancel()
			err := <-ended
			passing.Wait()
			require.NoError(t, errors.Join(err, log.Close(), store.Close()))
		})
	}
	t.Cleanup(d.stop)
	return d
}

func (d *daemon) options(w *world) engine.Options {
	return engine.Options{
		Store: d.store, StoreID: d.id, Instance: instance, Hosts: inventory{w}, Open: w.open, Own: hosts.Own{MachineID: "machine-" + own},
		Events: event.NewStream(d.observe), Record: d.record, Suspended: func() time.Duration { return 0 },
		Clusters: []engine.ClusterOptions{
			{Name: prod, Mode: guard.ModeEvaluate, Isolation: remediate.IsolateDelete, IdentityMode: "required", Watch: w.prod.Watch(), Kube: w.prod, Rules: policy.Rules{Namespaces: []string{"ns"}}},
			{Name: lab, Mode: guard.ModeObserve, Isolation: remediate.IsolateDelete, IdentityMode: "required", Watch: w.lab.Watch(), Kube: w.lab,
				FileChecks: []policy.Check{*check()}},
		},
		Guards: guard.Limits{ViewMaxAge: time.Minute, ClockSkewMax: time.Minute, MaxInFlight: 20, MaxInFlightPercent: 100,
			MaxInFlightPerZone: 20, ZoneBreakerPercent: 100, ZoneBreakerMin: 100, MaxFencesPerDay: 1, MaxInFlightTotal: 20},
		Run: remediate.Limits{OffDeadline: time.Minute, APITimeout: 2 * time.Minute, PodsGoneTimeout: time.Minute, OnDeadline: 3 * time.Minute,
			RestoreTimeout: 10 * time.Minute, RunTimeout: 2 * time.Hour, MinPowerInterval: time.Minute, MaxAttempts: 3, PowerOnFoundOff: true,
			ReadyTimeout: 10 * time.Minute},
		Power: power.ReadTiming{ReadTimeout: 5 * time.Second, OffReadSpacing: 3 * time.Second},
	}
}

// record makes an event durable, as the daemon does. // I24
func (d *daemon) record(ev event.Event) error {
	_, err := d.log.Append(context.Background(), entryOf(ev))
	return err
}

// observe takes the events that nothing waits for.
func (d *daemon) observe(ev event.Event) {
	if !ev.Recorded {
		d.log.Add(entryOf(ev))
	}
}

func entryOf(ev event.Event) audit.Entry {
	out := audit.Entry{Type: ev.Type, Cluster: ev.Cluster, Node: ev.Node, Run: ev.Run, Step: string(ev.Step), Action: string(ev.Action),
		Reason: string(ev.Reason), Message: ev.Message, Check: ev.Check, Actor: ev.Actor, Why: ev.Why, Inputs: ev.Inputs}
	for _, g := range ev.Gates {
		out.Gates = append(out.Gates, audit.Gate{Name: g.Name, Pass: g.Pass, Reason: string(g.Reason), Value: g.Value, Threshold: g.Threshold})
	}
	return out
}

// runOn is the open run on a host, else its newest.
func (d *daemon) runOn(t *testing.T, host string) (found remediate.Run) {
	t.Helper()
	for _, r := range d.Runs(prod) {
		if r.Target.Node == host && (found.ID == "" || r.Open() && !found.Open()) {
			found = r
		}
	}
	if found.ID == "" {
		x, err := d.Explain(t.Context(), prod, host)
		require.NoError(t, err)
		require.NotEmpty(t, found.ID, "no run on %s; gates: %+v", host, x.Gates)
	}
	return found
}

// files reads the files of the daemon as they lie on the disk at this moment, which is
// what a kill -9 leaves. Nothing is being written meanwhile: all goroutines wait.
func (d *daemon) files(t *testing.T) map[string][]byte {
	t.Helper()
	synctest.Wait()
	left := map[string][]byte{}
	for _, name := range []string{stateFile, auditFile, headFile} {
		data, err := os.ReadFile(filepath.Join(d.dir, name))
		require.NoError(t, err)
		left[name] = data
	}
	return left
}
