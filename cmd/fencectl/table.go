package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
)

// letters counts what a terminal shows: a letter of an east Asian script or an emoji takes two columns, a
// combining mark none. Letters whose width depends on the font take one, whatever the locale.
var letters = &runewidth.Condition{StrictEmojiNeutral: true}

// widthOf is how many columns of a terminal a text takes.
func widthOf(text string) int { return letters.StringWidth(text) }

// cut keeps a line from wrapping, which would break the redrawing.
func cut(line string, width int) string {
	if width <= 0 || widthOf(line) < width {
		return line
	}
	return letters.Truncate(line, width-1, "")
}

// gap is the space between two columns.
const gap = 2

// sentenceWidth is how narrow a column of sentences becomes before columns are left out.
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
	// spare are the columns that a table leaves out, in this order, where it would be too wide.
	spare []string
}

func newTable(head ...string) *table { return &table{head: head} }

// add appends a row; a value is a string or a cell. What comes after the last column of the head is left out: some
// columns are only there with -o wide.
func (t *table) add(values ...any) {
	values = values[:min(len(values), len(t.head))]
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

// write prints the table with a title line; one without rows prints nothing. What does not fit into the
// painter's width goes on below, in the same column, between words. No word is broken, so that every name
// can be copied: where the table does not fit, it leaves out columns that say nothing, then the spare ones,
// and then each row stands as lines of its own.
func (t *table) write(w io.Writer, p painter, title string) error {
	if len(t.rows) == 0 {
		return nil
	}
	var b strings.Builder
	if title != "" {
		b.WriteString("\n" + title + "\n")
	}
	rows := t.withHead()
	width, fits := fitWidths(rows, p.width, sentenceWidth)
	if !fits {
		rows = withoutDashes(rows)
		width, fits = fitWidths(rows, p.width, sentenceWidth)
	}
	if !fits {
		width, fits = fitWidths(rows, p.width, 1)
	}
	for _, name := range t.spare {
		if fits {
			break
		}
		rows = withoutColumn(rows, name)
		width, fits = fitWidths(rows, p.width, 1)
	}
	if fits {
		for _, row := range rows {
			writeRow(&b, p, row, width)
		}
	} else {
		writeStacked(&b, p, withoutDashes(t.withHead()))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// withHead is the rows under the head, all of the same length.
func (t *table) withHead() [][]cell {
	head := make([]cell, len(t.head))
	for i, h := range t.head {
		head[i] = cell{text: h}
	}
	return append([][]cell{head}, t.rows...)
}

// withoutDashes leaves out the columns in which every row has a dash.
func withoutDashes(rows [][]cell) [][]cell {
	said := map[string]bool{}
	for _, row := range rows[1:] {
		for i, c := range row {
			said[rows[0][i].text] = said[rows[0][i].text] || c.text != "-" && c.text != ""
		}
	}
	kept := rows
	for _, h := range rows[0] {
		if !said[h.text] {
			kept = withoutColumn(kept, h.text)
		}
	}
	return kept
}

// withoutColumn leaves out a column, by its name in the head.
func withoutColumn(rows [][]cell, name string) [][]cell {
	at := slices.IndexFunc(rows[0], func(h cell) bool { return h.text == name })
	if at < 0 || len(rows[0]) == 1 {
		return rows
	}
	kept := make([][]cell, len(rows))
	for i, row := range rows {
		kept[i] = row
		if at < len(row) { // a row of addMore is shorter
			kept[i] = slices.Delete(slices.Clone(row), at, at+1)
		}
	}
	return kept
}

// writeStacked prints each row as lines of its own, a name of a column and its cell in each.
func writeStacked(b *strings.Builder, p painter, rows [][]cell) {
	label := 0
	for _, h := range rows[0] {
		label = max(label, widthOf(strings.TrimSpace(h.text)))
	}
	for n, row := range rows[1:] {
		if n > 0 {
			b.WriteString("\n")
		}
		for i, c := range row {
			if c.text == "-" || c.text == "" {
				continue
			}
			name := strings.TrimSpace(rows[0][i].text)
			for _, line := range wrap(strings.TrimSpace(c.text), max(1, p.width-label-gap)) {
				b.WriteString(name + strings.Repeat(" ", label-widthOf(name)+gap) + p.paint(c.color, line) + "\n")
				name = ""
			}
		}
	}
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
			line += p.paint(c.color, text) + strings.Repeat(" ", width[i]-widthOf(text)+gap)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// fitWidths gives each column the width of its longest cell. If the table is then wider than
// limit (0: no limit), the widest columns are narrowed until it fits, none so far that a word is broken or
// that it is narrower than least. It says whether the table fits.
func fitWidths(rows [][]cell, limit, least int) (width []int, fits bool) {
	width, narrowest := make([]int, len(rows[0])), make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			width[i] = max(width[i], widthOf(c.text))
			narrowest[i] = max(narrowest[i], longestWord(c.text), least)
		}
	}
	return width, limit <= 0 || narrow(width, narrowest, limit)
}

// longestWord is the width of what must stand on one line: a word, with the indent before the first.
func longestWord(text string) (width int) {
	indent := len(text) - len(strings.TrimLeft(text, " "))
	for word := range strings.FieldsSeq(text) {
		width, indent = max(width, indent+widthOf(word)), 0
	}
	return width
}

// narrow makes the widest columns narrower until all fit into limit, none below its least width. It says
// whether they do.
func narrow(width, least []int, limit int) bool {
	total := gap * (len(width) - 1)
	for _, n := range width {
		total += n
	}
	for ; total > limit; total-- {
		widest := -1
		for i := range width { // the last of them: text stands to the right
			if width[i] > least[i] && (widest < 0 || width[i] >= width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return false
		}
		width[widest]--
	}
	return true
}

// wrap breaks text into lines of at most width columns (0: no limit) between words. It loses nothing but
// the spaces there. A word that is wider has a line of its own.
func wrap(text string, width int) []string {
	if width <= 0 || widthOf(text) <= width {
		return []string{text}
	}
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	var lines []string
	line, began := indent, false
	for rest := strings.TrimLeft(text, " "); rest != ""; {
		word, _, _ := strings.Cut(rest, " ")
		rest = rest[len(word):]
		if began && widthOf(line+word) > width {
			lines = append(lines, strings.TrimRight(line, " "))
			line = ""
		}
		spaces := len(rest) - len(strings.TrimLeft(rest, " "))
		line, began, rest = line+word+rest[:spaces], true, rest[spaces:]
	}
	return append(lines, strings.TrimRight(line, " "))
}
