// Package docs_test keeps the documents true: what they name exists, and what
// exists and an operator can meet is named.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
)

// documents reads every Markdown file of the project, by path from here.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "vendor" || d.Name() == "dist"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".md"):
			return nil
		}
		data, err := os.ReadFile(path)
		if within, ok := strings.CutPrefix(path, "../docs/"); ok {
			path = within
		}
		all[path] = string(data)
		return err
	})
	require.NoError(t, err)
	require.Greater(t, len(all), 30, "the documents were not found")
	return all
}

// walk parses every Go file of the project that keep wants, by path from here.
func walk(t *testing.T, keep func(path string) bool, visit func(path string, f *ast.File)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "vendor") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || !keep(path) {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err == nil {
			visit(path, f)
		}
		return err
	})
	require.NoError(t, err)
}

// TestNamedTestsExist: a guard that was renamed away guards nothing.
func TestNamedTestsExist(t *testing.T) {
	exists := testNames(t)
	named := 0
	for file, text := range documents(t) {
		for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(text, -1) {
			named++
			assert.True(t, exists[name], "%s names %s, which is no test", file, name)
		}
	}
	require.Greater(t, named, 50, "the names of tests were not found")
}

// TestNamedCasesExist: each row of the decision table is backed by its cases.
func TestNamedCasesExist(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\|.*\|([^|]*)\|$`)
	named := 0
	for _, m := range row.FindAllStringSubmatch(documents(t)["policy.md"], -1) {
		for _, name := range regexp.MustCompile("`([a-z0-9]+-[a-z0-9-]+)`").FindAllStringSubmatch(m[1], -1) {
			named++
			assert.FileExists(t, "../internal/policy/testdata/"+name[1]+".txtar")
		}
	}
	require.Greater(t, named, 50, "the names of cases were not found")
}

// TestEveryInvariantHasARow: each is guarded, none will be.
func TestEveryInvariantHasARow(t *testing.T) {
	text := documents(t)["safety.md"]
	assert.NotContains(t, strings.ToLower(text), "not yet", "an invariant without a guard is none")
	var want []string
	for i := range 27 {
		want = append(want, "I"+strconv.Itoa(i+1))
	}
	for _, name := range append(want, "L1", "L2", "L3", "L4", "L5") {
		row := regexp.MustCompile(`(?m)^\| ` + name + ` \|.*$`).FindString(text)
		require.NotEmpty(t, row, "safety.md has no row %s", name)
		assert.Contains(t, row, "`Test", "safety.md: nothing guards %s", name)
	}
}

// TestEveryDecisionIsInTheIndex: by its number and title, with a status and a date.
func TestEveryDecisionIsInTheIndex(t *testing.T) {
	all := documents(t)
	index, found := all["adr/README.md"], 0
	for file, text := range all {
		name, ok := strings.CutPrefix(file, "adr/")
		if !ok || name == "README.md" {
			continue
		}
		found++
		number, title, _ := strings.Cut(strings.TrimPrefix(strings.SplitN(text, "\n", 2)[0], "# "), ". ")
		row := regexp.MustCompile(`(?m)^\| ` + number + ` \| ` + regexp.QuoteMeta("["+title+"]("+name+")") + ` \| \S.* \| \d{4}-\d\d-\d\d \|$`)
		assert.Regexp(t, row, index, "docs/adr/README.md has no row of %s", file)
	}
	require.Greater(t, found, 20, "the decisions were not found")
}

// TestLinksResolve: every relative link leads to a file, and to a heading
// where it names one.
func TestLinksResolve(t *testing.T) {
	all := documents(t)
	found := 0
	for file, text := range all {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(fencedBlock.ReplaceAllString(text, ""), -1) {
			path, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			found++
			target := filepath.Join(filepath.Dir(file), path)
			if !assert.FileExists(t, target, "%s links to %s", file, m[1]) || heading == "" {
				continue
			}
			text, ok := all[strings.TrimPrefix(target, "../docs/")]
			require.True(t, ok, "%s links to a heading of %s, which is no document", file, target)
			assert.Contains(t, anchors(text), heading, "%s links to %s", file, m[1])
		}
	}
	require.Greater(t, found, 100, "the links were not found")
}

// anchors are those that a forge gives the headings.
func anchors(text string) []string {
	var list []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(fencedBlock.ReplaceAllString(text, ""), -1) {
		words := regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(words, " ", "-"))
	}
	return list
}

// TestManPageTellsTheRoles: the role of every verb of orders stands in the page.
func TestManPageTellsTheRoles(t *testing.T) {
	page, err := os.ReadFile("man/fencectl.8")
	require.NoError(t, err)
	want := map[string][]string{}
	for _, v := range wire.Verbs {
		if v.Name == wire.Reload {
			continue // fenced --reload gives it
		}
		role := v.Need.String()
		want[role] = append(want[role], strings.Replace(string(v.Name), "/", " ", 1))
	}
	require.Len(t, want, 2, "the roles were not found")
	for role, verbs := range want {
		line := regexp.MustCompile(`(?m)^\.It ` + role + `\n\.Cm (.*?),?$`).FindStringSubmatch(string(page))
		require.NotNil(t, line, "no line of %s", role)
		assert.ElementsMatch(t, verbs, strings.Split(strings.TrimSuffix(line[1], " "), " , "), role)
	}
}
