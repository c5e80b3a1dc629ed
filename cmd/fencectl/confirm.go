package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// dryRun shows what the order would do. It exits with 3 if a gate forbids the order.
func (c *cli) dryRun(ctx context.Context, o wire.Order) error {
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
// are right orders for the wrong name. The order that it returns is about what was shown.
func (c *cli) confirmName(ctx context.Context, o wire.Order, to string) (wire.Order, error) {
	o.DryRun = true
	rep, err := c.client().Do(ctx, o)
	if err != nil {
		return o, requestError(string(o.Verb)+" "+o.Of(), err)
	}
	if rep.Value.Named != nil {
		o = o.About(*rep.Value.Named)
	}
	if err := c.preview(c.errs, rep.Value); err != nil {
		return o, err
	}
	if err := c.showFailing(rep.Value.Gates, o); err != nil {
		return o, err
	}
	if err := refusedBy(o, rep.Value.Gates); err != nil {
		return o, err
	}
	o.DryRun = false
	return o, c.typeName(ctx, "type "+nameOf(o)+" "+to+": ", o.Of(), "nothing was done")
}

// typeName has the name typed. undone is what did not happen after another one.
func (c *cli) typeName(ctx context.Context, prompt, name, undone string) error {
	fmt.Fprint(c.errs, prompt)
	typed, err := c.readLine(ctx)
	if err != nil {
		return fmt.Errorf("read the confirmation: %w", err)
	}
	if strings.TrimSpace(typed) != name {
		return errors.New("not confirmed: " + undone)
	}
	return nil
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

func refusedBy(o wire.Order, gates []reason.Gate) error {
	for _, g := range gates {
		if !g.Pass {
			look := o.Command("explain")
			if g.Reason == reason.ConfirmedOffContradicted { // explain has no gate about a confirmation
				look = o.TestBMC()
			}
			return &exitError{code: exitRefused, err: fmt.Errorf("%s %s: refused (%s): %s", o.Verb, o.Of(), g.Reason, g.Why()), hint: []string{look}}
		}
	}
	return nil
}

// A prompt and what stands above it fit on a terminal of 80x24.
const (
	promptWidth    = 79 // a terminal may wrap after its last column
	promptPods     = 3  // that are named
	promptGates    = 4
	promptBMCLines = 2
)

// preview shows the target of an order and its effect. On a terminal the lines fit on a small screen;
// otherwise each fact is one line.
func (c *cli) preview(w io.Writer, r wire.OrderResult) error {
	width := 0
	if isTerminal(w) {
		width = promptWidth
	}
	var lines []string
	if r.Message != "" {
		lines = wrapUnder("", r.Message, width)
	}
	if r.Target != nil {
		lines = append(lines, targetLines(r.Target, time.Now(), width)...)
	}
	for _, known := range r.Evidence {
		lines = append(lines, wrapUnder("  * ", known, width)...)
	}
	for _, effect := range r.Effect {
		lines = append(lines, wrapUnder("  - ", effect, width)...)
	}
	if len(lines) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// targetLines are what a person compares with what was meant, one fact a line.
func targetLines(t *wire.OrderTarget, now time.Time, width int) []string {
	var lines []string
	fact := func(name, text string, most int) {
		found := wrapUnder(fmt.Sprintf("  %-9s", name), text, width)
		if len(found) > most {
			found = found[:most]
			found[most-1] = cut(found[most-1], promptWidth-3) + "..."
		}
		lines = append(lines, found...)
	}
	ready := "there is none"
	if t.Ready != "" {
		ready = "Ready is " + t.Ready
		if !t.ReadySince.IsZero() {
			ready += " for " + span(now.Sub(t.ReadySince))
		}
	}
	fact("cluster", t.Cluster, 1)
	fact("Node", strings.TrimSpace(t.Node+" "+ready), 2)
	if t.Machine != "" {
		fact("Machine", t.Machine, 2)
	}
	fact("pods", podsText(t), 2)
	fact("BMC", cmp.Or(t.BMC, "not asked"), promptBMCLines)
	fact("identity", identityText(t), 2)
	return lines
}

func podsText(t *wire.OrderTarget) string {
	switch {
	case t.PodsProblem != "":
		return "not known: " + t.PodsProblem
	case t.Pods == nil:
		return "not known"
	case t.Count == 0:
		return "none"
	}
	text := fmt.Sprint(t.Count)
	if t.More {
		text = "more than " + text
	}
	named := t.Names[:min(len(t.Names), promptPods)]
	text += ": " + strings.Join(named, ", ")
	if t.Count > len(named) || t.More {
		text += ", ..."
	}
	return text
}

func identityText(t *wire.OrderTarget) string {
	switch {
	case t.Identity == "":
		return "not compared"
	case t.UUID == "":
		return t.Identity
	}
	return t.Identity + ": the BMC is that of " + t.UUID
}

// showFailing shows above a prompt the gates that do not pass, and those that an order by a person
// does not need.
func (c *cli) showFailing(gates []reason.Gate, o wire.Order) error {
	p, shown := c.painter(c.errs), 0
	for _, g := range gates {
		mark := p.paint(red, "does not pass:")
		switch {
		case g.Waived:
			mark = p.paint(yellow, "waived:")
		case g.Pass:
			continue
		}
		if shown++; shown > promptGates {
			continue
		}
		lines := wrapUnder("  ", g.Why(), promptWidth)
		first := "  " + mark + " " + cut(strings.TrimSpace(lines[0]), promptWidth-len("  does not pass: ")-3)
		if len(lines) > 1 || widthOf(lines[0]) > promptWidth-len("  does not pass: ") {
			first += "..."
		}
		if _, err := fmt.Fprintln(c.errs, first); err != nil {
			return err
		}
	}
	if shown > promptGates {
		_, err := fmt.Fprintf(c.errs, "  and %d more: %s\n", shown-promptGates, o.Command("explain"))
		return err
	}
	return nil
}

// wrapUnder escapes text and breaks it into lines (width 0: one line), of which the first begins
// with a mark and the others stand under its text.
func wrapUnder(mark, text string, width int) []string {
	indent := widthOf(mark)
	lines := wrap(escapeControl(text), max(0, width-indent))
	for i := range lines {
		if i == 0 {
			lines[i] = mark + lines[i]
		} else {
			lines[i] = strings.Repeat(" ", indent) + lines[i]
		}
	}
	return lines
}
