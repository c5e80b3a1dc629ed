package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/reason"
)

// dryRun shows what the order would do. It exits with 3 if a gate forbids the order.
func (c *cli) dryRun(ctx context.Context, o api.Order) error {
	o.DryRun = true
	rep, err := c.client().Do(ctx, o)
	if err != nil {
		return requestError(string(o.Verb)+" "+o.Of(), err)
	}
	err = c.print(rep.Body, func() error {
		if err := c.preview(c.out, rep.Value); err != nil {
			return err
		}
		return c.gateTable(rep.Value.Gates, time.Now()).write(c.out, c.painter(c.out), "GATES")
	})
	if err != nil {
		return err
	}
	return refusedBy(o, rep.Value.Gates)
}

// confirmName shows what the order would do and has the name typed: most wrong fences
// are right orders for the wrong name.
func (c *cli) confirmName(ctx context.Context, o api.Order, prompt string) (name string, err error) {
	o.DryRun = true
	rep, err := c.client().Do(ctx, o)
	if err != nil {
		return "", requestError(string(o.Verb)+" "+o.Of(), err)
	}
	if err := c.preview(c.errs, rep.Value); err != nil {
		return "", err
	}
	if err := c.showFailing(rep.Value.Gates, asTyped(o)); err != nil {
		return "", err
	}
	if err := refusedBy(o, rep.Value.Gates); err != nil {
		return "", err
	}
	fmt.Fprint(c.errs, prompt)
	name, err = c.readLine(ctx)
	if err != nil {
		return "", fmt.Errorf("read the confirmation: %w", err)
	}
	if name = strings.TrimSpace(name); name != o.Of() {
		return "", errors.New("not confirmed: nothing was done")
	}
	return name, nil
}

// readLine reads what is typed, until the line or ctx ends. A read of a
// terminal cannot be interrupted, so it is left behind then.
func (c *cli) readLine(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}
	typed := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(c.in, 1024)).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil // what was typed so far counts
		}
		typed <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-typed:
		return r.line, r.err
	}
}

func refusedBy(o api.Order, gates []reason.Gate) error {
	for _, g := range gates {
		if !g.Pass {
			return &exitError{code: exitRefused, err: fmt.Errorf("%s %s: refused (%s): %s", o.Verb, o.Of(), g.Reason, g.Why()),
				hint: []string{"fencectl explain " + asTyped(o)}}
		}
	}
	return nil
}
