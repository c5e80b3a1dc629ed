package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/page"
	"github.com/fenced/fenced/internal/wire"
)

// isTable says whether people read the output.
func (c *cli) isTable() bool { return c.output == "table" || c.output == "wide" }

// print writes an answer in the form that was asked for: JSON is the body as it is,
// so that scripts see what fenced said, but for what a terminal would obey. names are what -o name prints,
// one a line.
func (c *cli) print(body []byte, table func() error, names ...string) error {
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
	case "name":
		seen := map[string]bool{}
		for _, name := range names {
			if name == "" || seen[name] {
				continue
			}
			seen[name] = true
			if _, err := fmt.Fprintln(c.out, escapeControl(name)); err != nil {
				return err
			}
		}
		return nil
	}
	return table()
}

// printDegraded is print for an answer that may say that something is not as it should be: then the exit status is 2.
func (c *cli) printDegraded(degraded bool, body []byte, table func() error, names ...string) error {
	if err := c.print(body, table, names...); err != nil || !degraded {
		return err
	}
	return &exitError{code: exitDegraded}
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

func span(d time.Duration) string { return page.Span(d) }

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

// clock writes a moment, "-" for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func orDash(s string) string { return cmp.Or(s, "-") }

// encode writes an answer that the program made itself, as the daemon would.
func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("print the answer: %w", err)
	}
	return append(wire.Versioned(body), '\n'), nil
}

// printValue prints an answer that the program made itself.
func (c *cli) printValue(v any, table func() error, names ...string) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	return c.print(body, table, names...)
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

// escapeControl escapes control characters in text from a BMC, a cluster or a person, which a terminal
// would obey.
func escapeControl(s string) string { return wire.Visible(s) }

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
