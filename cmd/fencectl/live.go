package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/fenced/fenced/internal/api"
)

// liveLines is how many steps a terminal redraws; earlier ones are in the
// timeline.
const liveLines = 12

// live shows a run as it goes: on a terminal one line per step that is drawn
// again, elsewhere one line when a step begins and one when it ends.
type live struct {
	out   io.Writer
	paint painter
	tty   bool

	drawn int   // lines on the terminal
	told  []int // per step: 1 its begin, 2 its end
}

func (c *cli) newLive() *live {
	return &live{out: c.out, paint: c.painter(c.out), tty: isTerminal(c.out)}
}

func (l *live) show(r api.RunRecord, now time.Time) {
	if l.tty {
		l.redraw(r, now)
		return
	}
	for i, s := range r.Steps {
		if i == len(l.told) {
			l.told = append(l.told, 0)
		}
		if l.told[i] == 0 {
			fmt.Fprintf(l.out, "%s started\n", stepName(s))
			l.told[i] = 1
		}
		if l.told[i] == 1 && !s.Ended.IsZero() {
			fmt.Fprintf(l.out, "%s ended after %s%s\n", stepName(s), span(s.Ended.Sub(s.Started)), note(s.Note))
			l.told[i] = 2
		}
	}
}

func (l *live) redraw(r api.RunRecord, now time.Time) {
	steps := r.Steps[max(0, len(r.Steps)-liveLines):]
	var b strings.Builder
	if l.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", l.drawn)
	}
	width := terminalWidth(l.out)
	for _, s := range steps {
		end, colour := s.Ended, green
		if end.IsZero() {
			end, colour = now, yellow
		}
		line := fmt.Sprintf("%-17s %8s%s", stepName(s), span(end.Sub(s.Started)), note(s.Note))
		fmt.Fprintf(&b, "\r\x1b[2K%s\n", l.paint.paint(colour, cut(line, width)))
	}
	l.drawn = len(steps)
	fmt.Fprint(l.out, b.String())
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
