package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/fenced/fenced/internal/api"
)

// print writes an answer in the form that was asked for: JSON is the body as it is,
// so that scripts see what fenced said, but for what a terminal would obey.
func (c *cli) print(body []byte, table func() error) error {
	switch c.output {
	case "json":
		_, err := c.out.Write(api.EscapeJSON(body))
		return err
	case "yaml":
		text, err := toYAML(body)
		if err != nil {
			return fmt.Errorf("turn the answer into YAML: %w", err)
		}
		_, err = c.out.Write(text)
		return err
	}
	return table()
}

// printRefusal gives a script the daemon's answer to what it would not do, in the form
// that was asked for; people read of it on stderr.
func (c *cli) printRefusal(err error) {
	if e, ok := errors.AsType[*api.Error](err); ok && len(e.Body) > 0 && c.output != "table" && c.output != "wide" {
		_ = c.print(e.Body, func() error { return nil }) // the exit status tells, too
	}
}

// color is an ANSI colour of text; plain has none.
type color string

const (
	plain  color = ""
	red    color = "31"
	green  color = "32"
	yellow color = "33"
)

// painter colours text for one stream.
type painter bool

func (p painter) paint(c color, text string) string {
	if !p || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// painter colours only what a person sees, and only if they want it.
func (c *cli) painter(w io.Writer) painter {
	return painter(!c.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w))
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// cell is one field of a table.
type cell struct {
	text  string
	color color
}

// table is rows of cells under a head, aligned.
type table struct {
	head []string
	rows [][]cell
}

func newTable(head ...string) *table { return &table{head: head} }

// add appends a row; a value is a string or a cell.
func (t *table) add(values ...any) {
	row := make([]cell, len(values))
	for i, v := range values {
		c, ok := v.(cell)
		if !ok {
			c = cell{text: fmt.Sprint(v)}
		}
		c.text = escapeControl(c.text)
		row[i] = c
	}
	t.rows = append(t.rows, row)
}

// write prints the table with a title line; one without rows prints nothing.
func (t *table) write(w io.Writer, p painter, title string) error {
	if len(t.rows) == 0 {
		return nil
	}
	head := make([]cell, len(t.head))
	width := make([]int, len(t.head))
	for i, h := range t.head {
		head[i] = cell{text: h}
	}
	rows := append([][]cell{head}, t.rows...)
	for _, row := range rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	if title != "" {
		b.WriteString("\n" + title + "\n")
	}
	for _, row := range rows {
		line := ""
		for i, c := range row {
			line += p.paint(c.color, c.text) + strings.Repeat(" ", width[i]-utf8.RuneCountInString(c.text)+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// span writes a duration as precisely as people care.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// clock writes a moment, "-" for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
