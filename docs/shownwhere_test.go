package docs_test

import (
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the table in testing.md")

// guard is a test, or a group of mutants, as the source has it.
type guard struct {
	dir    string // of its package, without ../
	inSoak bool   // it runs in make soak only
	law    bool   // it draws its worlds, fresh ones in a soak
	longer bool   // it has a longer form in a soak
}

// guards finds all tests, and whether a soak alone runs them.
func guards(t *testing.T) map[string]guard {
	t.Helper()
	all := map[string]guard{}
	eachTest(t, func(dir string, fn *ast.FuncDecl) {
		g := guard{dir: dir}
		ast.Inspect(fn, func(n ast.Node) bool {
			x, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			id, ok := x.X.(*ast.Ident)
			switch {
			case !ok:
			case id.Name == "dice" && x.Sel.Name == "OnlyInSoak":
				g.inSoak = !inLoop(fn, x)
				g.longer = g.longer || !g.inSoak
			case id.Name == "dice" && x.Sel.Name == "Soak":
				g.longer = true
			case id.Name == "law":
				g.law = true
			}
			return true
		})
		all[fn.Name.Name] = g
	})
	require.Greater(t, len(all), 500, "the tests were not found")
	return all
}

// inLoop says whether a call skips one case of several.
func inLoop(fn *ast.FuncDecl, call ast.Node) (found bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		if loop, ok := n.(*ast.RangeStmt); ok && loop.Pos() < call.Pos() && call.End() < loop.End() {
			found = true
		}
		return true
	})
	return found
}

func eachTest(t *testing.T, visit func(dir string, fn *ast.FuncDecl)) {
	t.Helper()
	walk(t, func(path string) bool { return strings.HasSuffix(path, "_test.go") }, func(path string, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Test") {
				visit(strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../"), fn)
			}
		}
	})
}

// brokenOnPurpose are the rules that a package's mutants break, each with how many.
func brokenOnPurpose(t *testing.T, dir string) map[string]int {
	t.Helper()
	found := map[string]int{}
	files, err := filepath.Glob("../" + dir + "/*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^\t\{"[^"]+", "([IL]\d+)\b`).FindAllSubmatch(text, -1) {
			found[string(m[1])]++
		}
	}
	require.NotEmpty(t, found, "the mutants of %s were not found", dir)
	return found
}

// shownWhere is the table of testing.md: which tests of safety.md's rows CI runs, and what
// only a soak does.
func shownWhere(t *testing.T, safety string) string {
	t.Helper()
	tests := guards(t)
	search, simulation := brokenOnPurpose(t, "internal/remediate"), brokenOnPurpose(t, "test/sim")
	var b strings.Builder
	b.WriteString("| | In CI | Only in `make soak` |\n|---|---|---|\n")
	for _, row := range regexp.MustCompile(`(?m)^\| ([IL]\d+) \|.*$`).FindAllStringSubmatch(safety, -1) {
		name := row[1]
		assert.Positive(t, simulation[name], "no mutant of the simulation breaks %s", name)
		ci, soak := []string{fmt.Sprintf("simulation, which notices %s", mutants(simulation[name]))}, []string{"fresh worlds"}
		if search[name] > 0 {
			ci = append(ci, fmt.Sprintf("search, which notices %s", mutants(search[name])))
			soak = append(soak, "widened search")
		}
		perPackage := map[string]int{}
		for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row[0], -1) {
			g, known := tests[m[1]]
			assert.True(t, known, "%s names %s, which is no test", name, m[1])
			if g.inSoak {
				soak = append(soak, "`"+m[1]+"`")
				continue
			}
			perPackage[g.dir]++
			if g.law || g.longer {
				soak = append(soak, "longer: `"+m[1]+"`")
			}
		}
		for _, dir := range slices.Sorted(maps.Keys(perPackage)) {
			ci = append(ci, fmt.Sprintf("%d in `%s`", perPackage[dir], dir))
		}
		assert.NotEmpty(t, perPackage, "%s: CI runs no test of it", name)
		slices.Sort(soak[1:])
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, strings.Join(ci, ", "), strings.Join(slices.Compact(soak), ", "))
	}
	return b.String()
}

func mutants(n int) string {
	if n == 1 {
		return "1 mutant"
	}
	return fmt.Sprintf("%d mutants", n)
}

const (
	tableBegins = "<!-- made by go test ./docs -update -->\n"
	tableEnds   = "<!-- end -->\n"
)

// TestShownWhere holds testing.md's table to safety.md and to the tests themselves.
func TestShownWhere(t *testing.T) {
	all := documents(t)
	want := shownWhere(t, all["safety.md"])
	before, rest, found := strings.Cut(all["testing.md"], tableBegins)
	require.True(t, found, "testing.md has no line %s", tableBegins)
	got, after, found := strings.Cut(rest, tableEnds)
	require.True(t, found, "testing.md has no line %s", tableEnds)
	if *update {
		require.NoError(t, os.WriteFile("testing.md", []byte(before+tableBegins+want+tableEnds+after), 0o644))
		return
	}
	assert.Equal(t, want, got, "go test ./docs -update writes it anew")
}
