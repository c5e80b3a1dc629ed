package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReasonsAreExplained: a code that an operator can be shown has a row that says what to
// do, and each row is of a code.
func TestReasonsAreExplained(t *testing.T) {
	reasons := reasonConstants(t)
	for _, kind := range literals(t, "../internal/bmc/error.go") {
		reasons = append(reasons, "BMC"+kind)
	}
	require.Greater(t, len(reasons), 110, "the reasons were not found")
	before, _, after := classTable(t) // its rows explain nothing
	tables, _, _ := strings.Cut(before+after, "| Finding | Meaning |")
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| ((?:`\\w+`(?:, )?)+) \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(tables, -1) {
		rows = append(rows, names(m[1])...)
	}
	for _, reason := range reasons {
		assert.Contains(t, rows, reason, "no operator is told what to do")
	}
	for _, row := range rows {
		assert.Contains(t, reasons, row, "reasons.md has a row of no code")
	}
}

// reasonConstants are the constants of type reason.Code, and the codes of the API's errors.
func reasonConstants(t *testing.T) (found []string) {
	t.Helper()
	product := func(path string) bool {
		return strings.HasPrefix(path, "../internal/") && !strings.HasSuffix(path, "_test.go")
	}
	walk(t, product, func(_ string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			lit, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || !isReason(spec.Type) && !strings.HasPrefix(spec.Names[0].Name, "Code") {
				return true
			}
			if s, err := strconv.Unquote(lit.Value); err == nil && s != "" {
				found = append(found, s)
			}
			return true
		})
	})
	return found
}

func isReason(typ ast.Expr) bool {
	switch x := typ.(type) {
	case *ast.Ident:
		return x.Name == "Code"
	case *ast.SelectorExpr:
		return x.Sel.Name == "Code"
	}
	return false
}

// TestGatesAreExplained: each of the daemon's own gates has its row.
func TestGatesAreExplained(t *testing.T) {
	text := documents(t)["policy.md"]
	named := regexp.MustCompile(`\b(?:NewGate|NoneOf)\("(\w+)"|\bGate\{+\s*Name: "(\w+)"`)
	found := 0
	files, err := filepath.Glob("../internal/*/*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || strings.Contains(file, "/policy/") { // what a check has against it is told apart
			continue
		}
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range named.FindAllStringSubmatch(string(data), -1) {
			found++
			assert.Regexp(t, `(?m)^\| (?:\w+, )?`+m[1]+m[2]+`(?:, \w+)? \|`, text)
		}
	}
	require.Greater(t, found, 30, "the gates were not found")
}

// TestFindingsAreExplained: each weakness that `fencectl bmc audit` can show has
// its row, and each row its weakness.
func TestFindingsAreExplained(t *testing.T) {
	codes := literals(t, "../internal/bmc/describe.go")
	require.Greater(t, len(codes), 8, "the findings were not found")
	_, section, _ := strings.Cut(documents(t)["reasons.md"], "| Finding | Meaning |")
	table, _, _ := strings.Cut(section, "\n\n")
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(table, -1) {
		rows = append(rows, m[1])
	}
	assert.ElementsMatch(t, codes, rows)
}

// TestMetricsAreExplained: each metric has a row that says when to worry.
func TestMetricsAreExplained(t *testing.T) {
	text := documents(t)["alerts.md"]
	var found []string
	data, err := os.ReadFile("../cmd/fenced/metrics.go")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`"(fenced_\w+)"`).FindAllStringSubmatch(string(data), -1) {
		found = append(found, m[1])
	}
	require.Greater(t, len(found), 20, "the metrics were not found")
	for _, name := range found {
		assert.Regexp(t, "(?m)^\\|[^|]*`"+name+"`", text)
	}
}

// literals are the strings in a file that have the form of a reason code.
func literals(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	code := regexp.MustCompile(`^[A-Z][a-z]+\w+$|^(?:TLS|API)\w*$`)
	var found []string
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && code.MatchString(s) {
				found = append(found, s)
			}
		}
		return true
	})
	return found
}
