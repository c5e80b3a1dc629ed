package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
)

// isTable says whether people read the output.
func (c *cli) isTable() bool { return c.output == "table" || c.output == "wide" }

// print writes an answer in the form that was asked for: JSON is the body as it is,
// so that scripts see what fenced said, but for what a terminal would obey.
func (c *cli) print(body []byte, table func() error) error {
	switch c.output {
	case "json":
		_, err := c.out.Write(wire.EscapeJSON(body))
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

// printRefusal prints the daemon's refusal for scripts, in the form of -o. People read it on stderr.
func (c *cli) printRefusal(err error) {
	if e, ok := errors.AsType[*api.Error](err); ok && len(e.Body) > 0 && !c.isTable() {
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

// painter writes for one stream: whether in colours, and how wide a table may be (0: any width).
type painter struct {
	color bool
	width int
}

func (p painter) paint(c color, text string) string {
	if !p.color || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// painter colours only what a person sees, and only if they want it. On a terminal that is less
// than maxWidth wide, tables are as wide as the terminal.
func (c *cli) painter(w io.Writer) painter {
	p := painter{color: !c.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)}
	if c.output != "wide" {
		p.width = maxWidth
		if width := terminalWidth(w); width > 0 {
			p.width = min(p.width, max(width, minWidth))
		}
	}
	return p
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// minWidth is how narrow a table may become on a narrow terminal.
const minWidth = 60

// maxWidth is how wide a table may be, unless -o wide asks for more.
const maxWidth = 120

// span writes a duration as precisely as people care.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return duration.HumanDuration(d)
}

// when writes a moment for a table: how long ago it was, or in how long it comes; with -o wide
// the moment itself. "-" is none.
func (c *cli) when(t, now time.Time) string {
	switch {
	case t.IsZero():
		return "-"
	case c.output == "wide":
		return clock(t)
	case t.After(now):
		return "in " + span(t.Sub(now))
	}
	return span(now.Sub(t)) + " ago"
}

// age is how long ago a moment was, "-" for none.
func age(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return span(now.Sub(since))
}

// age is how long ago a moment was, for a column that says so; with -o wide the moment itself.
func (c *cli) age(since, now time.Time) string {
	if c.output == "wide" {
		return clock(since)
	}
	return age(since, now)
}

// left is how long it is until a moment, for a column that says so; with -o wide the moment itself.
func (c *cli) left(until, now time.Time) string {
	if until.IsZero() || c.output == "wide" {
		return clock(until)
	}
	return span(until.Sub(now))
}

// head names a column of ages, which holds moments with -o wide.
func (c *cli) head(age, moment string) string {
	if c.output == "wide" {
		return moment
	}
	return age
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

// printValue prints an answer that the program made itself.
func (c *cli) printValue(v any, table func() error) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	return c.print(append(body, '\n'), table)
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

// escapeControl escapes control characters in text from a BMC, a cluster or a person, which a terminal
// would obey.
func escapeControl(s string) string {
	if !strings.ContainsFunc(s, wire.Unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if wire.Unprintable(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// toYAML turns one JSON value into YAML that means the same and is as harmless as
// wire.EscapeJSON makes JSON. Keys are sorted.
func toYAML(body []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one JSON value")
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := errors.Join(enc.Encode(yamlNode(value)), enc.Close()); err != nil {
		return nil, err
	}
	return escapeYAML(b.Bytes()), nil
}

// yamlNode quotes each text that holds something unprintable, which can be escaped there.
func yamlNode(value any) *yaml.Node {
	switch v := value.(type) {
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.Content = append(n.Content, yamlNode(key), yamlNode(v[key]))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v {
			n.Content = append(n.Content, yamlNode(item))
		}
		return n
	case string:
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}
		if strings.ContainsFunc(v, wire.Unprintable) {
			n.Style = yaml.DoubleQuotedStyle
		}
		return n
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(value)} // true or false
}

// escapeYAML escapes what the encoder takes for printable, which stands in double
// quotes only.
func escapeYAML(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		if r != '\n' && wire.Unprintable(r) {
			fmt.Fprintf(&b, `\U%08X`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.Bytes()
}
