package main

import (
	"fmt"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/event"
)

// setLevel sets how much is logged from now on: debug, info, warn or error.
func setLevel(level zap.AtomicLevel, name string) error {
	l, err := zapcore.ParseLevel(name)
	if err != nil {
		return fmt.Errorf("log level %q: %w", name, err)
	}
	level.SetLevel(l)
	return nil
}

// setLogLevel carries out fencectl log-level, until the next reload or restart.
func (c control) setLogLevel(o api.Order) (api.OrderResult, error) {
	before := c.level.String()
	if o.Level == before {
		return api.OrderResult{Message: "the log level is " + before + " already", Unchanged: true}, nil
	}
	if err := setLevel(c.level, o.Level); err != nil { // the server has checked the word
		return api.OrderResult{}, err
	}
	c.events.Emit(event.Event{Type: event.Ordered, Actor: o.Actor, Why: o.Reason,
		Message: fmt.Sprintf("log-level by %s: it was %s and is %s", o.Actor, before, o.Level)})
	return api.OrderResult{Message: fmt.Sprintf("the log level was %s and is %s, until fenced is reloaded or restarted", before, o.Level)}, nil
}
