package main

import (
	"context"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/order"
)

// giveOrder gives an order to the engine.
type giveOrder func(control, context.Context, order.Order) (order.Outcome, error)

// orderRow is what the daemon does with the orders of one verb.
type orderRow struct {
	give giveOrder
	// outcome says in a sentence what became of the order.
	outcome func(api.Order, order.Outcome) string
	// effect says what the order does to the world; nil = nothing to warn of.
	effect func(api.Order) []string
}

// orders is the table. bmc/enroll, which answers with what it stored, is in bmcs.go.
var orders = map[api.Verb]orderRow{
	api.Fence:      {byEngine((*engine.Engine).Fence), fenceMessage, fenceEffect},
	api.Unfence:    {byEngine((*engine.Engine).Unfence), unfenceMessage, nil},
	api.Abort:      {byEngine((*engine.Engine).Abort), abortMessage, nil},
	api.Retry:      {byEngine((*engine.Engine).Retry), retryMessage, nil},
	api.ConfirmOff: {control.confirmOff, confirmMessage, confirmEffect},
	api.Hold:       {byEngine((*engine.Engine).Hold), holdMessage, nil},
	api.Release:    {byEngine((*engine.Engine).ReleaseHold), releaseMessage, nil},
	api.Pause:      {byEngine((*engine.Engine).Pause), pauseMessage, nil},
	api.Resume:     {byEngine((*engine.Engine).Resume), resumeMessage, nil},
	api.Arm:        {arming(engine.Arming.Arm), armMessage, armEffect},
	api.Disarm:     {arming(engine.Arming.Disarm), disarmMessage, nil},
	api.ReleaseBMC: {byEngine((*engine.Engine).Unfreeze), unfreezeMessage, nil},
}

func byEngine(give func(*engine.Engine, context.Context, order.Order) (order.Outcome, error)) giveOrder {
	return func(c control, ctx context.Context, o order.Order) (order.Outcome, error) {
		return give(c.engine, ctx, o)
	}
}

func arming(give func(engine.Arming, context.Context, order.Order) (order.Outcome, error)) giveOrder {
	return func(c control, ctx context.Context, o order.Order) (order.Outcome, error) {
		return give(c.engine.Arming, ctx, o)
	}
}

// confirmOff adds to the evidence what the health check of BMCs read.
func (c control) confirmOff(ctx context.Context, o order.Order) (order.Outcome, error) {
	out, err := c.engine.ConfirmOff(ctx, o)
	out.Evidence = append(out.Evidence, c.lastHealthCheck(ctx, o)...)
	return out, err
}
