package main

import (
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/support"
	"github.com/fenced/fenced/internal/wire"
)

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
