package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/support"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/law"
)

func TestTableAlignsColouredCells(t *testing.T) {
	tab := newTable("NODE", "PASS", "X")
	tab.add("n-1", cell{text: "no", color: red}, "é")
	tab.add("a-longer-one", "yes", "")
	var b bytes.Buffer
	require.NoError(t, tab.write(&b, painter{}, "T"))
	assert.Equal(t, "\nT\nNODE          PASS  X\nn-1           no    é\na-longer-one  yes\n", b.String())
	b.Reset()
	require.NoError(t, tab.write(&b, painter{color: true}, ""))
	assert.Equal(t, "NODE          PASS  X\nn-1           \x1b[31mno\x1b[0m    é\na-longer-one  yes\n", b.String())
	b.Reset()
	require.NoError(t, newTable("NODE").write(&b, painter{color: true}, "T"))
	assert.Empty(t, b.String())
}

func TestCutCountsLetters(t *testing.T) {
	assert.Equal(t, "éé", cut("éééé", 3))
	assert.Equal(t, "éé", cut("éé", 3))
	assert.Equal(t, "éééé", cut("éééé", 0), "no terminal, no width")
	assert.Equal(t, "電", cut("電源交換", 4), "half a letter is none")
}

// A sentence breaks between words, and what comes next begins a line. Programs get it on one line.
func TestSentenceFitsTheTerminal(t *testing.T) {
	const text = "degraded: n-1 is not remediated: no answer. Next: fencectl explain n-1"
	assert.Equal(t, []string{text}, sentenceLines(text, 0))
	assert.Equal(t, []string{text}, sentenceLines(text, 80))
	assert.Equal(t, []string{"degraded: n-1 is not", "  remediated: no answer.", "  Next: fencectl explain", "  n-1"}, sentenceLines(text, 24))
}

// The columns stand under each other on the terminal, whatever the script.
func TestTableCountsWhatTheTerminalShows(t *testing.T) {
	tab := newTable("REASON", "BY")
	tab.add("電源交換", "ada")
	tab.add("🔌 ok", "eve")
	tab.add("e\u0301te\u0301", "bob") // with combining accents
	var b bytes.Buffer
	require.NoError(t, tab.write(&b, painter{}, ""))
	assert.Equal(t, "REASON    BY\n電源交換  ada\n🔌 ok     eve\ne\u0301te\u0301       bob\n", b.String())
}

// Whatever a table holds, no word of it is broken, none is lost while it is stacked or whole, and a line is
// wider than the painter allows only if it is one word.
func TestTableBreaksNoName(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-z0-9.-]{1,70}|[電源]{1,9}`)
		columns := rapid.IntRange(1, 8).Draw(t, "columns")
		var head []string
		for i := range columns {
			head = append(head, strings.Repeat(string(rune('A'+i)), i+1))
		}
		tab := newTable(head...)
		var words []string
		for range rapid.IntRange(1, 3).Draw(t, "rows") {
			var row []any
			for range columns {
				said := rapid.SliceOfN(word, 1, 4).Draw(t, "cell")
				words = append(words, said...)
				row = append(row, strings.Join(said, " "))
			}
			tab.add(row...)
		}
		width := rapid.SampledFrom([]int{60, 80, 120}).Draw(t, "width")
		var b bytes.Buffer
		if err := tab.write(&b, painter{width: width}, ""); err != nil {
			t.Fatal(err)
		}
		shown := strings.Fields(b.String())
		seen := map[string]int{}
		for _, w := range shown {
			seen[w]++
		}
		for _, w := range words {
			if seen[w]--; seen[w] < 0 && w != "-" {
				t.Fatalf("%q is not there as a whole:\n%s", w, b.String())
			}
		}
		for line := range strings.Lines(b.String()) {
			line = strings.TrimRight(line, "\n")
			if widthOf(line) > width && len(strings.Fields(line)) > 2 { // the name of a column, and the word
				t.Fatalf("%d columns wide: %s", widthOf(line), line)
			}
		}
	})
}

// What does not fit is left out first where it says nothing, then where it can be spared; then rows are
// stacked.
func TestNarrowTableDropsColumnsThenStacks(t *testing.T) {
	tab := newTable("NODE", "UNTIL", "RUN", "REASON")
	tab.spare = []string{"RUN"}
	tab.add(strings.Repeat("n", 40), "-", "mi42k0z1-4f9a1c", cell{text: "the BMC did not answer", color: red})
	at := func(width int) string {
		var b bytes.Buffer
		require.NoError(t, tab.write(&b, painter{width: width}, ""))
		return b.String()
	}
	name := strings.Repeat("n", 40)
	assert.Contains(t, at(0), "UNTIL")
	assert.Equal(t, "NODE"+strings.Repeat(" ", 38)+"RUN              REASON\n"+name+"  mi42k0z1-4f9a1c  the BMC did\n"+strings.Repeat(" ", 59)+"not answer\n", at(72))
	assert.Equal(t, "NODE"+strings.Repeat(" ", 38)+"REASON\n"+name+"  the BMC did not\n"+strings.Repeat(" ", 42)+"answer\n", at(60))
	assert.Equal(t, "NODE    "+name+"\nRUN     mi42k0z1-4f9a1c\nREASON  the BMC did not answer\n", at(45))
	tab.add("n-1", "-", "-", "-")
	assert.Contains(t, at(45), "answer\n\nNODE    n-1\n", "an empty line is between two rows")

	assert.Equal(t, []string{"a b", "ccccc"}, wrap("a b   ccccc", 4))
	assert.Equal(t, []string{"a b   ccccc"}, wrap("a b   ccccc", 0))
	assert.Equal(t, []string{"  abcd", "e"}, wrap("  abcd e", 4), "an indent is no line of its own")
}

// The tables of status fit on 80 columns, and have each name whole.
func TestStatusFitsOnASmallTerminal(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	node := "worker-3.rack-17.datacentre.example.com"
	st := wire.Status{
		Clusters: []wire.ClusterStatus{{Name: "prod", Mode: "evaluate", Owner: true, Epoch: 7, Nodes: 50,
			Deviating: []wire.TargetStatus{{Node: node, Check: "MachineHealthCheck ns/workers", Verdict: "Unhealthy", Reason: "NodeCondition", Since: at}}}},
		Runs: []wire.RunStatus{{ID: "mi42k0z1-4f9a1c", Cluster: "prod", Node: node, Step: "PowerOff", Attempt: 1, Started: at, Reason: "PowerOffFailed",
			LastError: &wire.RunError{At: at, Reason: "BMCUnreachable", Message: "no answer"}}},
		Blocked: []wire.Blocked{{Cluster: "prod", Node: node, Check: "MachineHealthCheck ns/workers", Reason: "BMCUnreachable", Class: "transient", Since: at}},
	}
	c := &cli{output: "table"}
	for _, tab := range []*table{clusterTable(st), c.targetTable(st, at), c.runTable(st, at)} {
		var b bytes.Buffer
		require.NoError(t, tab.write(&b, painter{width: 80}, ""))
		for line := range strings.Lines(b.String()) {
			assert.LessOrEqual(t, widthOf(strings.TrimRight(line, "\n")), 80, line)
		}
		if tab.head[0] != "CLUSTER" || tab.head[1] == "NODE" {
			assert.Contains(t, b.String(), node)
		}
		if tab.head[0] == "RUN" {
			assert.Contains(t, b.String(), "mi42k0z1-4f9a1c")
		}
	}
}

// ofTables are the columns whose word is no field: they are computed from fields, or join several.
var ofTables = map[string]string{
	"TOOK": "ended - started", "AGE": "now - started", "BLOCKED BY": "blocked: reason, since, nextTry", "ALIVE": "holder",
}

// TestTablesUseTheWordsOfJSON: the head of each column is the name of a field of the answer that the table shows, so that who
// reads a table finds it in -o json.
func TestTablesUseTheWordsOfJSON(t *testing.T) {
	words := map[string]bool{}
	for _, answer := range []any{wire.Status{}, wire.Nodes{}, wire.BMCs{}, wire.Plan{}, wire.Coverage{}, wire.Explanation{}, wire.Timeline{}, wire.Event{},
		wire.OrderResult{}, policy.Report{}, support.Result{}, initResult{}} {
		addWords(words, reflect.TypeOf(answer), map[reflect.Type]bool{})
	}
	heads := tableHeads(t)
	require.Greater(t, len(heads), 60, "the tables are found")
	for _, head := range slices.Sorted(maps.Keys(heads)) {
		word := strings.ToLower(strings.ReplaceAll(head, " ", ""))
		known := words[word] || words[word+"s"] || words[word+"seconds"] || ofTables[head] != ""
		assert.True(t, known, "%s: the column %q has the word of no field", heads[head], head)
	}
}

// addWords adds the names of all fields that a type has in JSON, in small letters.
func addWords(words map[string]bool, t reflect.Type, seen map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		addWords(words, t.Elem(), seen)
	case reflect.Struct:
		if seen[t] {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			f := t.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				words[strings.ToLower(name)] = true
			}
			addWords(words, f.Type, seen)
		}
	}
}

// tableHeads are the columns of all tables, with where they stand: the arguments of newTable, and what is appended to a head.
func tableHeads(t *testing.T) map[string]string {
	heads := map[string]string{}
	files := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	add := func(args []ast.Expr) {
		for _, arg := range args {
			if text, ok := arg.(*ast.BasicLit); ok && text.Kind == token.STRING {
				head, err := strconv.Unquote(text.Value)
				require.NoError(t, err)
				heads[strings.TrimSpace(head)] = files.Position(arg.Pos()).String()
			}
		}
	}
	for _, name := range names {
		file, err := parser.ParseFile(files, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				name, _ := n.Fun.(*ast.Ident)
				switch {
				case name == nil:
				case name.Name == "newTable":
					add(n.Args)
				case name.Name == "append" && isHead(n.Args[0]):
					add(n.Args[1:])
				}
			case *ast.AssignStmt:
				if list, ok := n.Rhs[0].(*ast.CompositeLit); ok && isHead(n.Lhs[0]) {
					add(list.Elts)
				}
			}
			return true
		})
	}
	return heads
}

// isHead says whether an expression is the head of a table.
func isHead(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "head"
	case *ast.SelectorExpr:
		return e.Sel.Name == "head"
	}
	return false
}
