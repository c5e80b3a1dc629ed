package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// heldGrace is how long a Held run is given to take up an unfence order.
const heldGrace = 30 * time.Second

// waitFlags is the flags of a verb that can wait for its run.
type waitFlags struct {
	wait    bool
	timeout time.Duration
}

func (w *waitFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "show the new steps until the run ends")
	cmd.Flags().Var(days{&w.timeout}, "timeout", "stop waiting after this time (exit 6); the run continues")
}

func (w *waitFlags) validate() error {
	if w.timeout < 0 || w.timeout > 0 && !w.wait {
		return usageError(errors.New("--timeout needs --wait and a time above 0"), "--wait --timeout 10m")
	}
	return nil
}

func (c *cli) showAndWait(ctx context.Context, w waitFlags, rep api.Reply[wire.OrderResult], g *goal) error {
	if !w.wait || rep.Value.Run == "" {
		return c.print(rep.Body, func() error { return c.printResult(rep.Value) }, rep.Value.Run)
	}
	quiet := !c.isTable() // only the body of the ended run
	if !quiet {
		if err := c.printResult(rep.Value); err != nil {
			return err
		}
	}
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	screen := c.newLive(g.newRun)
	end, err := c.follow(ctx, rep.Value.Run, func(r wire.RunRecord) bool {
		if !quiet {
			screen.show(r, time.Now())
		}
		return g.reached(r, time.Now())
	})
	if err != nil {
		return err
	}
	run := end.Value.Runs[0]
	if err := c.print(end.Body, func() error { return c.printEnd(run) }, run.ID); err != nil {
		return err
	}
	return g.exit(run)
}

func (c *cli) printResult(r wire.OrderResult) error {
	line := r.Message
	if !strings.Contains(line, r.Run) {
		line += " (run " + r.Run + ")"
	}
	if _, err := fmt.Fprintln(c.out, escapeControl(line)); err != nil || len(r.Nodes) == 0 {
		return err
	}
	return c.groupTable(r, time.Now()).write(c.out, c.painter(c.out), "")
}

func (c *cli) printEnd(r wire.RunRecord) error {
	line := fmt.Sprintf("%s: %s", cmp.Or(r.Node, r.Machine), r.Result)
	if r.Reason != "" {
		line += " (" + r.Reason + ")"
	}
	if !r.Ended.IsZero() {
		line += " after " + span(r.Ended.Sub(r.Started))
	}
	_, err := fmt.Fprintln(c.out, escapeControl(line)+note(r.Note))
	return err
}

// goal is what an order wants of its run.
type goal struct {
	offOnly   bool // Held with the host off
	confirmed bool // Held after a manual confirmation
	unfence   bool // an abort is as good as Done
	fromHeld  bool // the run may be Held still from before
	newRun    bool // the order began the run: all its steps are new

	// firstHeld is the run as it was first seen after the order, while it is still Held
	// from before.
	firstHeld *wire.RunRecord
	since     time.Time
}

// reached says whether nothing more is to be waited for.
func (g *goal) reached(r wire.RunRecord, now time.Time) bool {
	switch r.Result {
	case wire.ResultRunning, wire.ResultWaiting: // a waiting run goes on by itself
		return false
	case wire.ResultHeld:
		if !g.unfence && !g.fromHeld || g.confirmed && r.Reason == string(reason.ConfirmedOff) {
			return true
		}
		if g.firstHeld == nil {
			g.firstHeld, g.since = &r, now
		}
		before := len(g.firstHeld.Steps) == len(r.Steps)
		return !before || now.Sub(g.since) > heldGrace
	}
	return true
}

// exit gives the exit status of a run that is over.
func (g *goal) exit(r wire.RunRecord) error {
	explain := wire.OrderOn(r.Cluster, r.Node, r.Machine).Command("explain")
	switch {
	case r.Result == wire.ResultHeld && g.offOnly && r.Reason == string(reason.OperatorOff):
		return nil
	case r.Result == wire.ResultHeld && g.confirmed && r.Reason == string(reason.ConfirmedOff):
		return nil
	case r.Result == wire.ResultHeld:
		return &exitError{code: exitFailure, err: fmt.Errorf("run %s is held (%s): %s", r.ID, r.Reason, r.Note),
			hint: []string{explain, "fencectl timeline " + r.ID}}
	case r.Result == wire.ResultAborted && !g.unfence:
		return &exitError{code: exitRefused, err: fmt.Errorf("run %s was aborted (%s): %s", r.ID, r.Reason, r.Note),
			hint: []string{explain}}
	}
	return nil
}

const (
	// followInterval is how often a run is read when no event says to.
	followInterval = time.Second
	// restlessInterval spaces reads in a storm of events.
	restlessInterval = 100 * time.Millisecond
	// restartTime is how long a run is waited for while nobody answers, or while
	// too many ask: the daemon may be restarting, and goes on where it was.
	restartTime = 30 * time.Second
)

// changes gives a wake-up whenever an event that matters arrives. It is only a
// hint: when the stream breaks, the callers' own interval remains.
func changes(ctx context.Context, client *api.Client, matters func(wire.Event) bool) <-chan struct{} {
	wake := make(chan struct{}, 1)
	go func() {
		for e, err := range client.Events(ctx, 0) {
			if err != nil {
				return
			}
			if !matters(e) {
				continue
			}
			select {
			case wake <- struct{}{}:
			default: // one is pending
			}
		}
	}()
	return wake
}

// await waits for a wake-up, at most d; false means that ctx is done.
func await(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(restlessInterval):
	}
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-time.After(d):
	}
	return true
}

// follow reads a run until over says that it has come to its end.
func (c *cli) follow(ctx context.Context, id string, over func(wire.RunRecord) bool) (api.Reply[wire.Timeline], error) {
	client := c.client()
	streaming, endStream := context.WithCancel(ctx)
	defer endStream()
	wake := changes(streaming, client, func(e wire.Event) bool { return e.Run == id })
	lastAnswer := time.Now()
	for {
		rep, err := client.Run(ctx, id)
		switch {
		case ctx.Err() != nil: // below
		case errors.Is(err, api.ErrUnreachable) && time.Since(lastAnswer) < restartTime:
		case hasTooManyConnections(err) && time.Since(lastAnswer) < restartTime:
			endStream() // one of them
		case err != nil:
			return rep, requestError("follow run "+id, err)
		default:
			lastAnswer = time.Now()
			if over(rep.Value.Runs[0]) {
				return rep, nil
			}
		}
		if !await(ctx, wake, followInterval) {
			return rep, stoppedWaiting(ctx, id)
		}
	}
}

// hasTooManyConnections reports whether fenced refused a request because too many connections are open.
func hasTooManyConnections(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Code == api.CodeTooManyConnections
}

// stoppedWaiting returns the error of a wait that is over although the run is not.
func stoppedWaiting(ctx context.Context, id string) error {
	why := "interrupted"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		why = "timed out"
	}
	return &exitError{code: exitTimeout, err: fmt.Errorf("%s waiting for run %s, which goes on", why, id),
		hint: []string{"fencectl timeline " + id}}
}

// liveLines is how many steps a terminal redraws; earlier ones are in the
// timeline.
const liveLines = 12

// live shows the new steps of a run as they go: on a terminal one line per step that is drawn
// again, elsewhere one line when a step begins and one when it ends.
type live struct {
	out   io.Writer
	paint painter
	tty   bool

	known bool      // after is known
	after time.Time // steps that started later are new; an old record drops its first ones
	drawn int       // lines on the terminal
	told  []int     // per new step: 1 its begin, 2 its end
	// waits is what was last said about a Waiting run.
	waits string
}

// newLive shows every step of a new run, and of another one those that have not ended yet.
func (c *cli) newLive(newRun bool) *live {
	return &live{out: c.out, paint: c.painter(c.out), tty: isTerminal(c.out), known: newRun}
}

func (l *live) show(r wire.RunRecord, now time.Time) {
	steps := l.newSteps(r.Steps)
	if l.tty {
		l.redraw(r, steps, now)
		return
	}
	for i, s := range steps {
		if i == len(l.told) {
			l.told = append(l.told, 0)
		}
		if l.told[i] == 0 {
			fmt.Fprintf(l.out, "%s  %s started%s\n", timeOfDay(s.Started), stepName(s), deadline(r, s, now))
			l.told[i] = 1
		}
		if l.told[i] == 1 && !s.Ended.IsZero() {
			fmt.Fprintf(l.out, "%s  %s ended after %s%s\n", timeOfDay(s.Ended), stepName(s), span(s.Ended.Sub(s.Started)), note(courseOf(s)))
			l.told[i] = 2
		}
	}
	if text := waitText(r); text != l.waits {
		if l.waits = text; text != "" {
			fmt.Fprintln(l.out, text)
		}
	}
}

// newSteps are the steps that had not ended before the order.
func (l *live) newSteps(steps []wire.StepRecord) []wire.StepRecord {
	if !l.known {
		l.known = true
		for _, s := range slices.Backward(steps) {
			if !s.Ended.IsZero() {
				l.after = s.Started
				break
			}
		}
	}
	if i := slices.IndexFunc(steps, func(s wire.StepRecord) bool { return s.Started.After(l.after) }); i >= 0 {
		return steps[i:]
	}
	return nil
}

// waitText returns why a Waiting run stands still, or an empty string for another run.
func waitText(r wire.RunRecord) string {
	if r.Result != wire.ResultWaiting {
		return ""
	}
	text := "run " + escapeControl(r.ID) + " is Waiting (" + escapeControl(r.Reason) + ")"
	if r.Note != "" {
		text += note(r.Note) + ";"
	} else {
		text += ":"
	}
	return text + " it goes on by itself"
}

// redraw shows the newest steps, and below them how long the run takes.
func (l *live) redraw(r wire.RunRecord, steps []wire.StepRecord, now time.Time) {
	steps = steps[max(0, len(steps)-liveLines):]
	var b strings.Builder
	if l.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", l.drawn)
	}
	width := terminalWidth(l.out)
	draw := func(c color, line string) { fmt.Fprintf(&b, "\r\x1b[2K%s\n", l.paint.paint(c, cut(line, width))) }
	for _, s := range steps {
		end, colour := s.Ended, green
		if end.IsZero() {
			end, colour = now, yellow
		}
		draw(colour, fmt.Sprintf("%s  %-17s %8s%s%s", timeOfDay(s.Started), stepName(s), span(end.Sub(s.Started)), deadline(r, s, now), note(courseOf(s))))
	}
	before := l.drawn
	l.drawn = len(steps) + 1
	if text := waitText(r); text != "" {
		draw(yellow, text)
		l.drawn++
	}
	draw(plain, fmt.Sprintf("run %s: %s, %s elapsed", escapeControl(r.ID), escapeControl(r.Result), span(cmp.Or(r.Ended, now).Sub(r.Started))))
	if l.drawn < before {
		b.WriteString("\x1b[J") // the line about the wait is over
	}
	fmt.Fprint(l.out, b.String())
}

// timeOfDay is a moment of today, with its zone.
func timeOfDay(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// deadline is by when the step that is open must end, if it must.
func deadline(r wire.RunRecord, s wire.StepRecord, now time.Time) string {
	if !s.Ended.IsZero() || r.Deadline.IsZero() {
		return ""
	}
	return fmt.Sprintf(", deadline %s (in %s)", timeOfDay(r.Deadline), span(r.Deadline.Sub(now)))
}

// stepName is "n/6 Step", with the attempt after the first.
func stepName(s wire.StepRecord) string {
	name := fmt.Sprintf("%d/6 %s", wire.StepNumber(s.Step), escapeControl(s.Step))
	if s.Attempt > 1 {
		name += fmt.Sprintf(" (attempt %d)", s.Attempt)
	}
	return name
}

func note(text string) string {
	if text == "" {
		return ""
	}
	return ": " + escapeControl(text)
}

// watchInterval is how often -w looks when nothing happens.
const watchInterval = 2 * time.Second

// watchFlag is -w of a verb that shows something.
type watchFlag struct{ watch bool }

func (w *watchFlag) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&w.watch, "watch", "w", false, "show it again whenever something happens")
}

// run shows once, or again and again. It ends with the exit status of what it showed last.
func (w *watchFlag) run(ctx context.Context, c *cli, show func(context.Context) error) error {
	if !w.watch {
		return show(ctx)
	}
	wake := changes(ctx, c.client(), func(wire.Event) bool { return true })
	for {
		if c.isTable() && isTerminal(c.out) {
			fmt.Fprint(c.out, "\x1b[H\x1b[2J")
		}
		last := show(context.WithoutCancel(ctx))
		if exit, ok := errors.AsType[*exitError](last); last != nil && (!ok || exit.code != exitDegraded) {
			return last
		}
		if !await(ctx, wake, watchInterval) {
			return last
		}
	}
}
