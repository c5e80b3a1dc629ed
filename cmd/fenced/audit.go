package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
)

const (
	// recordTime is how long a destructive action waits for its record.
	recordTime = 5 * time.Second
	// headEvery is between two exports of the head.
	headEvery = 5 * time.Minute
	// retryEvery is between two attempts to open a log that could not be, or to write
	// one that could not be.
	retryEvery = 5 * time.Second
)

// auditor is the audit log as a subscriber of the engine's events. The engine also waits for it
// before each destructive action. A log that cannot be opened prevents these only: hosts that are
// off must come back.
type auditor struct {
	path   string
	origin audit.Origin
	log    *zap.Logger

	mu     sync.Mutex
	chain  *audit.Log // nil while it cannot be opened
	err    error      // why
	since  time.Time
	missed uint64 // events that came without a log
}

// newAuditor opens the log. The only error is that another fenced writes it.
func newAuditor(path, store string, log *zap.Logger) (*auditor, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the host's name: %w", err)
	}
	a := &auditor{path: path, origin: audit.Origin{Version: version, Host: host, Store: store}, log: log}
	if err := a.open(); errors.Is(err, audit.ErrLocked) {
		return nil, err
	}
	a.export()
	return a, nil
}

// open opens the log, and alerts when that begins to fail and when it succeeds again. Only one
// goroutine calls it at a time.
func (a *auditor) open() error {
	chain, err := audit.Open(a.path, audit.Options{Origin: a.origin, OnError: a.alert})
	a.mu.Lock()
	before, missed := a.err, a.missed
	if err != nil && before == nil {
		a.since = time.Now().UTC()
	}
	a.chain, a.err = chain, err
	a.mu.Unlock()
	switch {
	case err != nil && before == nil:
		a.alert(err)
	case err == nil && before != nil:
		a.alert(nil)
		chain.Add(audit.Entry{Type: audit.Lost, Message: fmt.Sprintf("%d events came while the log could not be opened", missed)})
	}
	return err
}

// alert logs that the audit log cannot be written, or can be again if err is nil.
func (a *auditor) alert(err error) {
	if err != nil {
		a.log.Error("the audit log cannot be written: nothing destructive is done until it can be", zap.Error(err))
		return
	}
	a.log.Info("the audit log can be written again")
}

func (a *auditor) now() (*audit.Log, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.chain, a.err
}

// trouble is since when, and why, the log cannot be written; nil when it can.
func (a *auditor) trouble() (since time.Time, err error) {
	a.mu.Lock()
	chain, since, err := a.chain, a.since, a.err
	a.mu.Unlock()
	if err != nil {
		return since, err
	}
	return chain.Trouble()
}

// problem is why the log cannot be written; "" when it can.
func (a *auditor) problem() string {
	if _, err := a.trouble(); err != nil {
		return err.Error()
	}
	return ""
}

// record returns nil once an event is durable. // I24
func (a *auditor) record(e event.Event) error {
	chain, err := a.now()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	_, err = chain.Append(ctx, entryOf(e))
	return err
}

// observe takes the events that nothing waits for.
func (a *auditor) observe(e event.Event) {
	if e.Recorded {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.chain == nil {
		a.missed++
		return
	}
	a.chain.Add(entryOf(e))
}

func entryOf(e event.Event) audit.Entry {
	out := audit.Entry{
		Type: e.Type, Cluster: e.Cluster, Node: e.Node, Machine: e.Machine, Run: e.Run, Step: string(e.Step), Action: string(e.Action),
		Reason: string(e.Reason), Message: e.Message, Check: e.Check, Actor: e.Actor, Why: e.Why, Inputs: e.Inputs,
	}
	for _, g := range e.Gates {
		out.Gates = append(out.Gates, audit.Gate{Name: g.Name, Pass: g.Pass, Reason: string(g.Reason), Value: g.Value, Threshold: g.Threshold})
	}
	return out
}

// keep exports the head again and again, and tries what could not be done, until
// ctx ends.
func (a *auditor) keep(ctx context.Context) error {
	export, retry := time.NewTicker(headEvery), time.NewTicker(retryEvery)
	defer export.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-export.C:
			a.export()
		case <-retry.C:
			a.retry()
		}
	}
}

// retry opens the log if it is not, and writes what it lacks.
func (a *auditor) retry() {
	chain, err := a.now()
	if err == nil {
		chain.Retry()
	} else if a.open() == nil {
		a.export()
	}
}

// export writes the head of the chain to the journal, which somebody who can change the log may not
// be able to change.
func (a *auditor) export() {
	chain, err := a.now()
	if err != nil {
		return // open has alerted
	}
	head, err := chain.Export()
	a.logHead(head)
	if err != nil {
		a.log.Warn("the head of the audit log is not remembered beside it", zap.Error(err))
	}
}

func (a *auditor) logHead(h audit.Head) {
	a.log.Info("audit head", zap.Uint64("seq", h.Seq), zap.String("hash", fmt.Sprintf("%x", h.Hash)))
}

// close ends the log when nothing can come any more.
func (a *auditor) close() error {
	chain, err := a.now()
	if err != nil {
		return nil
	}
	err = chain.Close()
	a.logHead(chain.Head())
	return err
}

func (a *auditor) failures() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.chain == nil {
		return float64(a.missed)
	}
	return float64(a.missed + a.chain.Failures())
}

func (a *auditor) seq() float64 {
	chain, err := a.now()
	if err != nil {
		return 0
	}
	return float64(chain.Head().Seq)
}

// openAudit opens the audit log, which names the store that it tells of.
func (d *fenced) openAudit() (err error) {
	if d.audit, err = newAuditor(d.cfg.AuditPath(), d.storeID, d.log); err != nil {
		return err
	}
	d.metrics.measureAudit(d.audit)
	return nil
}

// words is the message of an event that needs no sentence.
func words(e event.Event) string {
	switch e.Type {
	case event.Acting:
		return "action " + string(e.Action)
	case event.Stepped:
		return "step " + string(e.Step)
	case event.ViewChanged:
		return "the view of the cluster is good"
	}
	return e.Type
}

// levelOf is how much an event matters: who looks at warnings sees all that keeps a node
// from being remediated, and an error is what needs a person.
func levelOf(e event.Event) zapcore.Level {
	switch {
	case e.Type == event.Stepped && e.Step == remediate.Held,
		e.Type == event.Reloaded && e.Reason != "":
		return zapcore.ErrorLevel
	case e.Type == event.Stepped && e.Step == remediate.Waiting,
		e.Type == event.Failed, e.Type == event.Refused, e.Type == event.LimitClosed,
		e.Type == event.CheckChanged && e.Reason != "",
		e.Type == event.ViewChanged && e.Message != "",
		e.Type == sweep.EventBMC && e.Reason != "":
		return zapcore.WarnLevel
	}
	return zapcore.InfoLevel
}

// logEvents is the log as a subscriber of the engine's events. The keys are
// fixed: operators search for them.
func logEvents(log *zap.Logger) func(event.Event) {
	return func(e event.Event) {
		fields := []zap.Field{zap.String("event", e.Type)}
		for _, f := range []struct{ key, value string }{
			{"cluster", e.Cluster}, {"node", e.Node}, {"machine", e.Machine}, {"check", e.Check}, {"run", e.Run}, {"step", string(e.Step)},
			{"action", string(e.Action)}, {"reason", string(e.Reason)},
		} {
			if f.value != "" {
				fields = append(fields, zap.String(f.key, f.value))
			}
		}
		log.Log(levelOf(e), cmp.Or(e.Message, words(e)), fields...)
	}
}
