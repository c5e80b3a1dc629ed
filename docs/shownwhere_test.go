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
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

var update = flag.Bool("update", false, "rewrite the table in testing.md")

// namesakes says which tests safety.md means by a name that several packages have.
var namesakes = map[string][]string{
	"TestCommandIsNotGivenToAnotherBMC": {"internal/bmclib", "internal/ipmi", "internal/redfish"},
	"TestProofLaw":                      {"internal/bmc"}, // that of internal/k8swatch/view is about the age of a view
}

// shown are the tests that show an invariant.
type shown struct {
	invariant string
	tests     []place
}

// invariants reads the rows of safety.md. A name there that is no test, or not one test,
// shows nothing.
func invariants(t *testing.T, safety string, tests map[place]guard) (rows []shown) {
	t.Helper()
	dirs := map[string][]string{}
	for p := range tests {
		dirs[p.name] = append(dirs[p.name], p.dir)
	}
	for _, m := range regexp.MustCompile(`(?m)^\| ([IL]\d+) \|.*$`).FindAllStringSubmatch(safety, -1) {
		row := shown{invariant: m[1]}
		for _, word := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(m[0], -1) {
			name := word[1]
			assert.NotEmpty(t, dirs[name], "%s names %s, which is no test", m[1], name)
			meant := dirs[name]
			if len(meant) > 1 {
				meant = namesakes[name]
				assert.NotEmpty(t, meant, "%s names %s, which %v have: say in namesakes which is meant", m[1], name, dirs[name])
				assert.Subset(t, dirs[name], meant, "namesakes: a package has no %s", name)
			}
			for _, dir := range meant {
				row.tests = append(row.tests, place{dir, name})
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// requireEach holds rows to the invariants that there are at least, each once.
func requireEach(t *testing.T, rows []shown) {
	t.Helper()
	times := map[string]int{}
	for _, row := range rows {
		times[row.invariant]++
		assert.Equal(t, 1, times[row.invariant], "safety.md has %s more than once", row.invariant)
	}
	for letter, last := range map[string]int{"I": 26, "L": 4} {
		for i := range last {
			name := fmt.Sprint(letter, i+1)
			assert.Positive(t, times[name], "safety.md has no row %s", name)
		}
	}
}

// brokenOnPurpose are the rules that a package's mutants break, each with how many.
func brokenOnPurpose(t *testing.T, dir string, rows []shown) map[string]int {
	t.Helper()
	found := map[string]int{}
	files := must.Do(filepath.Glob("../" + dir + "/*_test.go"))(t)
	for _, file := range files {
		text := must.Do(os.ReadFile(file))(t)
		for _, m := range regexp.MustCompile(`(?m)^\t\{"[^"]+", "([IL]\d+)\b`).FindAllSubmatch(text, -1) {
			found[string(m[1])]++
		}
	}
	require.NotEmpty(t, found, "the mutants of %s were not found", dir)
	for name := range found {
		assert.True(t, hasRow(rows, name), "a mutant of %s breaks %s, which safety.md does not have", dir, name)
	}
	return found
}

func hasRow(rows []shown, name string) bool {
	return slices.ContainsFunc(rows, func(row shown) bool { return row.invariant == name })
}

// table is that of testing.md: which tests of safety.md's rows CI runs, and what a soak adds.
func table(t *testing.T, rows []shown, tests map[place]guard) string {
	t.Helper()
	search, simulation := brokenOnPurpose(t, "internal/remediate", rows), brokenOnPurpose(t, "test/sim", rows)
	var b strings.Builder
	b.WriteString("| | In CI | Only in `make soak` |\n|---|---|---|\n")
	for _, row := range rows {
		assert.Positive(t, simulation[row.invariant], "no mutant of the simulation breaks %s", row.invariant)
		ci, soak := []string{"simulation: " + mutants(simulation[row.invariant])}, []string{"fresh worlds"}
		if n := search[row.invariant]; n > 0 {
			ci, soak = append(ci, "search: "+mutants(n)), append(soak, "widened search")
		}
		inCI, only, longer := map[string][]string{}, map[string][]string{}, map[string][]string{}
		for _, p := range row.tests {
			if tests[p].onlySoak {
				only[p.dir] = append(only[p.dir], p.name)
				continue
			}
			inCI[p.dir] = append(inCI[p.dir], p.name)
			if tests[p].longer {
				longer[p.dir] = append(longer[p.dir], p.name)
			}
		}
		assert.NotEmpty(t, inCI, "%s: CI runs no test of it", row.invariant)
		ci, soak = append(ci, byPackage("", inCI)...), append(append(soak, byPackage("", only)...), byPackage("longer: ", longer)...)
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.invariant, strings.Join(ci, "<br>"), strings.Join(soak, "<br>"))
	}
	return b.String()
}

// byPackage names tests by package.
func byPackage(before string, tests map[string][]string) (groups []string) {
	for _, dir := range slices.Sorted(maps.Keys(tests)) {
		slices.Sort(tests[dir])
		groups = append(groups, fmt.Sprintf("%s`%s`: %s", before, dir, strings.Join(slices.Compact(tests[dir]), ", ")))
	}
	return groups
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
	all, tests := documents(t), guards(t)
	rows := invariants(t, all["safety.md"], tests)
	requireEach(t, rows)
	want := table(t, rows, tests)
	before, rest, found := strings.Cut(all["testing.md"], tableBegins)
	require.True(t, found, "testing.md has no line %s", tableBegins)
	got, after, found := strings.Cut(rest, tableEnds)
	require.True(t, found, "testing.md has no line %s", tableEnds)
	if *update {
		require.NoError(t, os.WriteFile("testing.md", []byte(before+tableBegins+want+tableEnds+after), 0o644))
		return
	}
	for _, m := range regexp.MustCompile(`(?m)^\| (\S+) \|`).FindAllStringSubmatch(got, -1) {
		assert.True(t, hasRow(rows, m[1]), "testing.md has a row %s, which safety.md does not have", m[1])
	}
	for line := range strings.Lines(want) {
		assert.True(t, strings.Contains(got, line), "testing.md lacks this row; go test ./docs -update writes it anew:\n%s", line)
	}
	assert.True(t, got == want, "testing.md has other rows, or in another order; go test ./docs -update writes it anew")
}

// TestSoakReachesWhatCILeavesOut: what no recipe runs is shown nowhere.
func TestSoakReachesWhatCILeavesOut(t *testing.T) {
	commands := soakCommands(t)
	reached := func(p place, saying string) bool {
		return slices.ContainsFunc(commands, func(c command) bool {
			return strings.Contains(c.text, saying) && c.reaches(t, p)
		})
	}
	only := 0
	for p, g := range guards(t) {
		if g.onlySoak {
			only++
		}
		if g.onlySoak || g.longer {
			assert.True(t, reached(p, "$(SOAK)"), "%s leaves something to a soak, and no recipe of make soak runs it: let the recipe "+
				"courses of the Makefile name it and its package, or move it into a package that the recipe laws finds", p)
		}
	}
	assert.Positive(t, only, "the tests that only a soak runs were not found")
	assert.True(t, reached(place{"test/sim", "TestSimulation"}, "SIM_FIRST="), "no recipe of make soak draws fresh worlds")
	assert.True(t, reached(place{"internal/remediate", "TestExplore"}, "FENCED_SEARCH=wide"), "no recipe of make soak widens the search")
}

// mayAsk are the helpers that may ask whether this is a soak, each with why.
var mayAsk = map[place]string{
	{"test/law", "Check"}: "it only says how to draw the worlds again",
}

// TestTestsThemselvesAskForASoak: in a helper nobody sees which of its tests have two
// forms, and the table of testing.md does not either.
func TestTestsThemselvesAskForASoak(t *testing.T) {
	found := 0
	walk(t, func(string) bool { return true }, func(path string, f *ast.File) {
		for _, d := range f.Decls {
			asks := uses(f, d, "test/dice", "Soak")
			found += len(asks)
			if !isTest(path, d) && len(asks)+len(uses(f, d, "test/dice", "OnlyInSoak")) > 0 {
				p := place{dir: dirOf(path), name: "a variable"}
				if fn, ok := d.(*ast.FuncDecl); ok {
					p.name = fn.Name.Name
				}
				assert.NotEmpty(t, mayAsk[p], "%s asks whether this is a soak: let each test ask, and give the answer on", p)
			} else if len(asks) > 0 {
				assert.False(t, skips(d), "%s: %s skips beside dice.Soak: dice.OnlyInSoak says why it skips, and what runs it", path, d.(*ast.FuncDecl).Name.Name)
			}
		}
	})
	assert.Greater(t, found, 2, "the uses of dice.Soak were not found")
}

// skips says whether a test gives itself up without dice.OnlyInSoak.
func skips(d ast.Decl) (yes bool) {
	ast.Inspect(d, func(n ast.Node) bool {
		if x, ok := n.(*ast.SelectorExpr); ok {
			yes = yes || slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, x.Sel.Name)
		}
		return true
	})
	return yes
}

// place is where a test is. Its name alone does not say: several packages may have it.
type place struct{ dir, name string }

func (p place) String() string { return p.dir + "." + p.name }

// guard is what a soak adds to a test.
type guard struct {
	onlySoak bool // CI runs nothing of it
	longer   bool // it draws fresh worlds there, or has a longer form
}

// guards finds all tests, and what a soak adds to each.
func guards(t *testing.T) map[place]guard {
	t.Helper()
	all := map[place]guard{}
	walk(t, isTestFile, func(path string, f *ast.File) {
		for _, d := range f.Decls {
			if !isTest(path, d) {
				continue
			}
			fn := d.(*ast.FuncDecl)
			p := place{dirOf(path), fn.Name.Name}
			_, twice := all[p]
			assert.False(t, twice, "%s is there twice; give one another name", p)
			all[p] = guardOf(f, fn)
		}
	})
	require.Greater(t, len(all), 500, "the tests were not found")
	return all
}

func guardOf(f *ast.File, fn *ast.FuncDecl) (g guard) {
	for _, use := range uses(f, fn, "test/dice", "OnlyInSoak") {
		some := underCondition(fn, use)
		g.onlySoak = g.onlySoak || !some
		g.longer = g.longer || some
	}
	g.longer = g.longer || len(uses(f, fn, "test/dice", "Soak")) > 0 || len(uses(f, fn, "test/law", "")) > 0
	return g
}

func isTestFile(path string) bool { return strings.HasSuffix(path, "_test.go") }

// dirOf is the directory of a package, from the root of the project.
func dirOf(path string) string {
	return strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
}

// isTest says whether go test runs a declaration: not a helper that is called like a test.
func isTest(path string, d ast.Decl) bool {
	fn, ok := d.(*ast.FuncDecl)
	if !ok || !isTestFile(path) || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") || len(fn.Type.Params.List) != 1 {
		return false
	}
	star, ok := fn.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	x, ok := star.X.(*ast.SelectorExpr)
	return ok && x.Sel.Name == "T"
}

// uses finds where a part of a file speaks of a function of a package, "" for any of it,
// under whatever name the file imports the package.
func uses(f *ast.File, part ast.Node, pkg, function string) (found []ast.Node) {
	local := ""
	for _, spec := range f.Imports {
		if spec.Path.Value != strconv.Quote("github.com/fenced/fenced/"+pkg) {
			continue
		}
		local = filepath.Base(pkg)
		if spec.Name != nil {
			local = spec.Name.Name
		}
	}
	ast.Inspect(part, func(n ast.Node) bool {
		if x, ok := n.(*ast.SelectorExpr); ok && (function == "" || x.Sel.Name == function) {
			if id, ok := x.X.(*ast.Ident); ok && id.Name == local {
				found = append(found, x)
			}
		}
		return true
	})
	return found
}

// underCondition says whether a call stands under an if or in a case, which leaves the
// other cases of its test to CI.
func underCondition(fn *ast.FuncDecl, call ast.Node) (yes bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.IfStmt, *ast.CaseClause:
			yes = yes || n.Pos() < call.Pos() && call.End() <= n.End()
		}
		return true
	})
	return yes
}

// command is a go test of the Makefile.
type command struct {
	text     string
	run      *regexp.Regexp // the names of its tests; nil is all
	packages []string       // as directories
	importer *regexp.Regexp // it also runs the packages below these roots whose tests say this
	roots    []string
}

var (
	recipe        = regexp.MustCompile(`(?m)^([a-z]+):.*\n((?:\t.*\n)+)`)
	making        = regexp.MustCompile(`\$\(MAKE\) (\w+)`)
	namedTests    = regexp.MustCompile(`-run '([^']+)'`)
	namedPackages = regexp.MustCompile(`\./([\w/]+)`)
	searches      = regexp.MustCompile(`grep -rlE --include='\*_test\.go' '([^']+)' ([\w ]+) \|`)
)

// soakCommands reads from the Makefile each go test that make soak comes to.
func soakCommands(t *testing.T) (all []command) {
	t.Helper()
	text := must.Do(os.ReadFile("../Makefile"))(t)
	recipes := map[string]string{}
	for _, m := range recipe.FindAllStringSubmatch(string(text), -1) {
		recipes[m[1]] = strings.ReplaceAll(strings.ReplaceAll(m[2], "\\\n", ""), "$$", "$")
	}
	require.Contains(t, string(text), "\nSOAK := FENCED_SOAK=1 ", "what a recipe says with $(SOAK)")
	for _, m := range making.FindAllStringSubmatch(recipes["soak"], -1) {
		require.NotEmpty(t, recipes[m[1]], "make soak comes to %s, which has no recipe", m[1])
		for line := range strings.Lines(recipes[m[1]]) {
			if strings.Contains(line, "$(GO) test") {
				all = append(all, parseCommand(line))
			}
		}
	}
	require.Greater(t, len(all), 3, "the recipes of make soak were not found")
	return all
}

func parseCommand(line string) command {
	c := command{text: line}
	if m := namedTests.FindStringSubmatch(line); m != nil {
		c.run = regexp.MustCompile(m[1])
	}
	for _, m := range namedPackages.FindAllStringSubmatch(line, -1) {
		c.packages = append(c.packages, m[1])
	}
	if m := searches.FindStringSubmatch(line); m != nil {
		c.importer, c.roots = regexp.MustCompile(m[1]), strings.Fields(m[2])
	}
	return c
}

// reaches says whether a command runs a test.
func (c command) reaches(t *testing.T, p place) bool {
	t.Helper()
	if c.run != nil && !c.run.MatchString(p.name) {
		return false
	}
	below := func(root string) bool { return strings.HasPrefix(p.dir, root+"/") }
	if slices.Contains(c.packages, p.dir) {
		return true
	}
	if !slices.ContainsFunc(c.roots, below) {
		return false
	}
	files := must.Do(filepath.Glob("../" + p.dir + "/*_test.go"))(t)
	return slices.ContainsFunc(files, func(file string) bool {
		text := must.Do(os.ReadFile(file))(t)
		return c.importer.Match(text)
	})
}
