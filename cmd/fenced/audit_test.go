package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/wire"
)

func openedAuditor(t *testing.T, path string) (*auditor, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	a, err := newAuditor(path, "STORE", zap.New(core))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.close()) })
	return a, logs
}

func entries(t *testing.T, path string) (all []audit.Entry) {
	t.Helper()
	_, err := audit.Walk(path, func(l audit.Line) error { all = append(all, l.Entry); return nil })
	require.NoError(t, err)
	return all
}

// Each event is in the log once, those that something waits for included. // I24
func TestEventsAreAudited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a, logs := openedAuditor(t, path)
	events := event.NewStream(a.observe)
	events.Emit(event.Event{Type: event.Ordered, Node: "n-1", Actor: "root", Why: "it hangs", Message: "root fences: it hangs"})
	act := event.Event{Type: event.Acting, Node: "n-1", Run: "r1", Action: remediate.SendOff, Inputs: "power=On"}
	require.NoError(t, a.record(act))
	act.Recorded = true
	events.Emit(act)
	require.NoError(t, a.record(event.Event{Type: event.Started, Check: "ns/workers",
		Gates: []reason.Gate{{Name: "pause", Pass: true, Value: "no", Threshold: "not paused", Source: "state"}}}))

	all := entries(t, path)
	require.Len(t, all, 4)
	assert.Equal(t, &audit.Origin{Version: version, Host: all[0].Origin.Host, Store: "STORE"}, all[0].Origin)
	assert.Equal(t, []string{"root", "it hangs"}, []string{all[1].Actor, all[1].Why})
	assert.Equal(t, []string{"SendOff", "power=On"}, []string{all[2].Action, all[2].Inputs})
	assert.Equal(t, []audit.Gate{{Name: "pause", Pass: true, Value: "no", Threshold: "not paused"}}, all[3].Gates)
	assert.Equal(t, "ns/workers", all[3].Check)
	assert.EqualValues(t, 4, a.seq())
	assert.Zero(t, a.failures())

	require.NoError(t, a.close())
	heads := logs.FilterMessage("audit head").All()
	require.Len(t, heads, 2, "at the start and at the stop")
	fields := heads[1].ContextMap()
	assert.EqualValues(t, 4, fields["seq"])
	assert.Len(t, fields["hash"], 64)
}

// A log that is damaged forbids what hurts and nothing else, which the status says
// with since when and why, and is taken up again once an operator has moved it away.
func TestDamagedAuditLogForbidsWhatHurts(t *testing.T) {
	began := time.Now()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("junk\n"), 0o600))
	a, logs := openedAuditor(t, path)
	require.ErrorAs(t, a.record(event.Event{Type: event.Acting}), new(*audit.Broken))
	a.observe(event.Event{Type: event.Stepped})
	assert.EqualValues(t, 1, a.failures())
	require.Error(t, a.open())
	assert.Equal(t, 1, logs.FilterLevelExact(zapcore.ErrorLevel).Len(), "it is told once")
	shown := control{audit: a}.auditStatus()
	require.NotNil(t, shown)
	assert.Contains(t, shown.Problem, "keep it as evidence")
	assert.WithinRange(t, shown.Since, began, time.Now())
	assert.EqualValues(t, 1, shown.Missing)

	require.NoError(t, os.Rename(path, path+"-kept"))
	a.retry()
	assert.Nil(t, control{audit: a}.auditStatus())
	require.NoError(t, a.record(event.Event{Type: event.Acting}))
	all := entries(t, path)
	require.Len(t, all, 3)
	assert.Equal(t, audit.Lost, all[1].Type)
	assert.Equal(t, "1 events came while the log could not be opened", all[1].Message)
	assert.EqualValues(t, 1, a.failures())
}

func TestAuditLogHasOneWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	openedAuditor(t, path)
	_, err := newAuditor(path, "OTHER", zap.NewNop())
	require.True(t, errors.Is(err, audit.ErrLocked))
}

func TestAuditMetrics(t *testing.T) {
	a, _ := openedAuditor(t, filepath.Join(t.TempDir(), "audit.jsonl"))
	m := &metrics{registry: prometheus.NewRegistry()}
	m.measureAudit(a)
	found, err := m.registry.Gather()
	require.NoError(t, err)
	require.Len(t, found, 3)
	assert.Equal(t, "fenced_audit_writable", found[2].GetName())
	assert.EqualValues(t, 1, found[2].GetMetric()[0].GetGauge().GetValue())
	assert.Equal(t, "fenced_audit_failures_total", found[0].GetName())
	assert.Equal(t, "fenced_audit_seq", found[1].GetName())
	assert.EqualValues(t, 1, found[1].GetMetric()[0].GetGauge().GetValue())
}

// Who is refused an order is on record with what, why, and the code of the refusal. // I24
func TestRefusedOrdersAreAudited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	a, _ := openedAuditor(t, path)
	c := control{events: event.NewStream(a.observe), audit: a}
	c.Refused(wire.Order{Verb: wire.ConfirmOff, Cluster: "prod", Node: "n-1", Actor: "otto (uid 4004)", Reason: "it smells"},
		&api.Error{Code: api.CodeNotAuthorised, Message: "it needs role admin"})
	c.Refused(wire.Order{Verb: wire.Retry, Actor: "ada"}, &api.Error{Status: 504, Message: "it took too long"})
	require.NoError(t, a.close())
	all := entries(t, path)
	assert.Equal(t, "failed: retry by ada: it took too long", all[len(all)-1].Message)
	e := all[len(all)-2]
	e.Seq, e.At = 0, time.Time{}
	assert.Equal(t, audit.Entry{
		Type: event.Ordered, Cluster: "prod", Node: "n-1", Actor: "otto (uid 4004)", Why: "it smells", Reason: "NotAuthorised",
		Message: "refused: confirm-off by otto (uid 4004): it needs role admin",
	}, e)
}

// Who looks at warnings sees all that keeps a node from being remediated, and nothing of a
// run that goes well.
func TestLevelsOfEvents(t *testing.T) {
	for _, c := range []struct {
		event event.Event
		want  zapcore.Level
	}{
		{event.Event{Type: event.Started}, zapcore.InfoLevel},
		{event.Event{Type: event.Acting, Action: remediate.SendOff}, zapcore.InfoLevel},
		{event.Event{Type: event.Stepped, Step: remediate.Done}, zapcore.InfoLevel},
		{event.Event{Type: event.Ordered}, zapcore.InfoLevel},
		{event.Event{Type: event.ViewChanged}, zapcore.InfoLevel},
		{event.Event{Type: event.ViewChanged, Message: "the API server is silent"}, zapcore.WarnLevel},
		{event.Event{Type: sweep.EventBMC}, zapcore.InfoLevel},
		{event.Event{Type: sweep.EventBMC, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.Refused, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.RefusalEnded}, zapcore.InfoLevel},
		{event.Event{Type: event.CheckChanged, Message: "is Active"}, zapcore.InfoLevel},
		{event.Event{Type: event.CheckChanged, Reason: reason.ShortCircuit, Message: "is Paused"}, zapcore.WarnLevel},
		{event.Event{Type: event.LimitClosed, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.LimitOpened}, zapcore.InfoLevel},
		{event.Event{Type: event.Failed, Reason: reason.ShortCircuit}, zapcore.WarnLevel},
		{event.Event{Type: event.Stepped, Step: remediate.Waiting}, zapcore.WarnLevel},
		{event.Event{Type: event.Stepped, Step: remediate.Held}, zapcore.ErrorLevel},
	} {
		core, logs := observer.New(zap.DebugLevel)
		logEvents(zap.New(core))(c.event)
		require.Equal(t, 1, logs.Len())
		assert.Equal(t, c.want, logs.All()[0].Level, "%+v", c.event)
	}
}

// The keys of an event are a contract: people search for them.
func TestKeysOfEvents(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	logEvents(zap.New(core))(event.Event{Type: event.Stepped, Cluster: "prod", Node: "n", Machine: "ns/m", Check: "c", Run: "r", Step: remediate.Held,
		Action: remediate.SendOff, Reason: reason.ShortCircuit, Message: "look"})
	assert.Equal(t, "look", logs.All()[0].Message)
	assert.Equal(t, map[string]any{"event": "Step", "cluster": "prod", "node": "n", "machine": "ns/m", "check": "c", "run": "r", "step": "Held",
		"action": string(remediate.SendOff), "reason": "ShortCircuit"}, logs.All()[0].ContextMap())
}
