package docs_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
	text, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
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
	files, err := filepath.Glob("../" + p.dir + "/*_test.go")
	require.NoError(t, err)
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return c.importer.Match(text)
	})
}
