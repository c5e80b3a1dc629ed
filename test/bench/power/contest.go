package power

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// entries are the lines of the tables, ours first.
var entries = []entry{
	{tool: "fenced", over: startDebian}, {tool: "fenced", warm: true, over: startDebian}, {tool: "ipmitool", over: startDebian},
	{tool: "bmclib", over: startDebian}, {tool: "fence_ipmilan", over: startDebian}, {tool: "fence_ipmilan (defaults)", over: startDebian},
	{tool: "fenced", over: startRedfish}, {tool: "fenced", warm: true, over: startRedfish},
	{tool: "bmclib", over: startRedfish}, {tool: "fence_redfish", over: startRedfish},
}

// overIPMI is how many of the entries are over IPMI; the others are over Redfish.
const overIPMI = 6

// row is what a contestant needed.
type row struct {
	name string
	// status is one status read; proof a power off with two Off reads, the time
	// between them left out.
	status, proof figure
}

// contest is all contestants over one network.
type contest struct {
	delay time.Duration
	rows  []row // as entries
}

// hold lets all contestants do everything, samples times. One at a time does
// something; the time between two Off reads is the same for all, so that the
// others use it.
func hold(ctx context.Context, delay time.Duration, samples int, connect connect) (contest, error) {
	t := contest{delay: delay}
	var all []*contestant
	defer func() {
		for _, c := range all {
			c.end()
		}
	}()
	for _, e := range entries {
		c, err := e.start(ctx, delay, connect)
		if err != nil {
			return t, err
		}
		all = append(all, c)
		t.rows = append(t.rows, row{name: c.name()})
	}
	for range samples {
		if err := t.round(ctx, all); err != nil {
			return t, fmt.Errorf("%s added: %w", delay, err)
		}
	}
	return t, nil
}

// round is one sample of each. A host's second read comes as soon as it may: a
// session that is left alone ends.
func (t *contest) round(ctx context.Context, all []*contestant) error {
	for i, c := range all {
		s, err := c.prepared(actStatus)
		if err != nil {
			return err
		}
		t.rows[i].status = append(t.rows[i].status, s)
	}
	var begun []half
	for i, c := range all {
		off, err := c.prepared(actOff)
		if err != nil {
			return err
		}
		begun = append(begun, half{i, off, time.Now().Add(spacing)})
		for len(begun) > 0 && !time.Now().Before(begun[0].due) {
			if err := t.confirm(all, begun[0]); err != nil {
				return err
			}
			begun = begun[1:]
		}
	}
	for _, h := range begun {
		if err := until(ctx, h.due); err != nil {
			return err
		}
		if err := t.confirm(all, h); err != nil {
			return err
		}
	}
	return nil
}

// half is a proof with its first read; due is when the second may follow.
type half struct {
	entry int
	off   cost
	due   time.Time
}

func (t *contest) confirm(all []*contestant, h half) error {
	c := all[h.entry]
	s, err := c.do(actConfirm)
	if err != nil {
		return err
	}
	if !c.off() {
		return fmt.Errorf("by %s a host was called off that is on", c.name())
	}
	t.rows[h.entry].proof = append(t.rows[h.entry].proof, h.off.add(s))
	return nil
}

// until waits; it is an error when ctx ended first.
func until(ctx context.Context, when time.Time) error {
	timer := time.NewTimer(time.Until(when))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errors.Join(errors.New("the measurement took too long"), ctx.Err())
	case <-timer.C:
		return nil
	}
}
