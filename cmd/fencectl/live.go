package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/fenced/fenced/internal/api"
)

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

func (l *live) show(r api.RunRecord, now time.Time) {
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
			fmt.Fprintf(l.out, "%s  %s ended after %s%s\n", timeOfDay(s.Ended), stepName(s), span(s.Ended.Sub(s.Started)), note(s.Note))
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
func (l *live) newSteps(steps []api.StepRecord) []api.StepRecord {
	if !l.known {
		l.known = true
		for _, s := range slices.Backward(steps) {
			if !s.Ended.IsZero() {
				l.after = s.Started
				break
			}
		}
	}
	if i := slices.IndexFunc(steps, func(s api.StepRecord) bool { return s.Started.After(l.after) }); i >= 0 {
		return steps[i:]
	}
	return nil
}

// waitText says why a Waiting run stands still, "" of another run.
func waitText(r api.RunRecord) string {
	if r.Result != api.ResultWaiting {
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
func (l *live) redraw(r api.RunRecord, steps []api.StepRecord, now time.Time) {
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
		draw(colour, fmt.Sprintf("%s  %-17s %8s%s%s", timeOfDay(s.Started), stepName(s), span(end.Sub(s.Started)), deadline(r, s, now), note(s.Note)))
	}
	end := r.Ended
	if end.IsZero() {
		end = now
	}
	before := l.drawn
	l.drawn = len(steps) + 1
	if text := waitText(r); text != "" {
		draw(yellow, text)
		l.drawn++
	}
	draw(plain, fmt.Sprintf("run %s: %s, %s elapsed", escapeControl(r.ID), escapeControl(r.Result), span(end.Sub(r.Started))))
	if l.drawn < before {
		b.WriteString("\x1b[J") // the line about the wait is over
	}
	fmt.Fprint(l.out, b.String())
}

// timeOfDay is a moment of today, with its zone.
func timeOfDay(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// deadline is by when the step that is open must end, if it must.
func deadline(r api.RunRecord, s api.StepRecord, now time.Time) string {
	if !s.Ended.IsZero() || r.Deadline.IsZero() {
		return ""
	}
	return fmt.Sprintf(", deadline %s (in %s)", timeOfDay(r.Deadline), span(r.Deadline.Sub(now)))
}

// stepName is "n/6 Step", with the attempt after the first.
func stepName(s api.StepRecord) string {
	name := fmt.Sprintf("%d/6 %s", api.StepNumber(s.Step), escapeControl(s.Step))
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

// cut keeps a line from wrapping, which would break the redrawing.
func cut(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) < width {
		return line
	}
	return string([]rune(line)[:width-1])
}

func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
