package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// gap is the space between two columns.
const gap = 2

// sentenceWidth is how narrow a column of sentences becomes before other columns are narrowed.
const sentenceWidth = 16

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

// addMore says how many rows of a cluster the answer left out.
func (t *table) addMore(cluster string, more int) {
	if more > 0 {
		t.add(cluster, fmt.Sprintf("and %d more", more))
	}
}

// write prints the table with a title line; one without rows prints nothing. What does not fit
// into the painter's width goes on below, in the same column: nothing is cut off.
func (t *table) write(w io.Writer, p painter, title string) error {
	if len(t.rows) == 0 {
		return nil
	}
	head := make([]cell, len(t.head))
	for i, h := range t.head {
		head[i] = cell{text: h}
	}
	rows := append([][]cell{head}, t.rows...)
	width := fitWidths(rows, p.width)
	var b strings.Builder
	if title != "" {
		b.WriteString("\n" + title + "\n")
	}
	for _, row := range rows {
		writeRow(&b, p, row, width)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRow prints one row, on as many lines as its longest cell needs.
func writeRow(b *strings.Builder, p painter, row []cell, width []int) {
	lines := make([][]string, len(row))
	height := 1
	for i, c := range row {
		lines[i] = wrap(c.text, width[i])
		height = max(height, len(lines[i]))
	}
	for n := range height {
		line := ""
		for i, c := range row {
			text := ""
			if n < len(lines[i]) {
				text = lines[i][n]
			}
			line += p.paint(c.color, text) + strings.Repeat(" ", width[i]-utf8.RuneCountInString(text)+gap)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// fitWidths gives each column the width of its longest cell. If the table is then wider than
// limit (0: no limit), the widest columns are narrowed until it fits: first those of sentences,
// then all as far as no word is broken, then those with long words.
func fitWidths(rows [][]cell, limit int) []int {
	width, word := make([]int, len(rows[0])), make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c.text))
			for text := range strings.FieldsSeq(c.text) {
				word[i] = max(word[i], utf8.RuneCountInString(text))
			}
		}
	}
	if limit > 0 {
		sentence := make([]int, len(width))
		for i := range word {
			sentence[i] = max(word[i], sentenceWidth)
		}
		narrow(width, sentence, limit)
		narrow(width, word, limit)
		narrow(width, make([]int, len(width)), limit)
	}
	return width
}

// narrow makes the widest columns narrower until all fit into limit, none below its least width.
func narrow(width, least []int, limit int) {
	total := gap * (len(width) - 1)
	for _, n := range width {
		total += n
	}
	for ; total > limit; total-- {
		widest := -1
		for i := range width { // the last of them: text stands to the right
			if width[i] > max(1, least[i]) && (widest < 0 || width[i] >= width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		width[widest]--
	}
}

// wrap breaks text into lines of at most width letters (0: no limit), between words where that
// is possible. It loses nothing but the spaces there.
func wrap(text string, width int) []string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	var lines []string
	rest := []rune(text)
	for len(rest) > width {
		at := width
		for i := width; i > 0; i-- {
			if rest[i] == ' ' && strings.TrimSpace(string(rest[:i])) != "" {
				at = i
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = rest[at:]
		for len(rest) > 0 && rest[0] == ' ' {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 {
		lines = append(lines, string(rest))
	}
	return slices.Clip(lines)
}
