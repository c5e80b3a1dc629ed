package engine

import (
	"context"
	"time"
)

// lastingCheck is how often it is asked whether an action that is under way may go
// on: a claim is renewed more rarely than that.
const lastingCheck = time.Second

// until is how long this instance owns the cluster and, for what hurts, nobody else
// acts there, as far as is known now: zero for no such end, or why that is over.
func (t *leadership) until(hurts bool, now time.Time) (by time.Time, why string) {
	if why := t.awake.over(); why != "" {
		return time.Time{}, why
	}
	by = t.claim.Until()
	if !hurts {
		return by, ""
	}
	announced, why := t.notice.until(now)
	return earliest(by, announced), why
}

// ending says whether the claim was lost, or is to be handed over.
func (t *leadership) ending() bool {
	select {
	case <-t.lost:
		return true
	default:
		return false
	}
}

// lasting bounds an action that is begun now by the end of claim and announcement.
// Both are renewed while it goes on, so the bound moves: an agent may need longer than
// either lasts at any moment. What is not renewed cuts the action at the last end that
// is known, and what is lost before that cuts it at once. // I19, I22
func (t *leadership) lasting(ctx context.Context, hurts bool, by time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if by.IsZero() {
		return ctx, cancel
	}
	go func() {
		defer cancel()
		for now := time.Now(); now.Before(by); now = time.Now() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(lastingCheck, by.Sub(now))):
			}
			if t.awake.over() != "" {
				return
			}
			if t.ending() { // what is renewed now is no more ours
				continue
			}
			var why string
			if by, why = t.until(hurts, time.Now()); why != "" {
				return
			}
		}
	}()
	return ctx, cancel
}
