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

	"github.com/fenced/fenced/test/must"
)

// TestImportTableIsTheOneThatIsChecked: a newcomer reads in architecture.md what
// internal/arch_test.go holds the code to.
func TestImportTableIsTheOneThatIsChecked(t *testing.T) {
	checked := checkedImports(t)
	require.Greater(t, len(checked), 15, "the table of arch_test.go was not found")
	row := regexp.MustCompile("(?m)^\\| ((?:`[\\w/-]+`(?:, )?)+) \\| [^|]+ \\| ([^|]+) \\|$")
	told := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(documents(t)["architecture.md"], -1) {
		for _, pkg := range names(m[1]) {
			if !strings.HasPrefix(pkg, "cmd/") {
				pkg = "internal/" + pkg
			}
			told[pkg] = names(m[2])
			if m[2] == "all" {
				told[pkg] = []string{"*"}
			}
		}
	}
	for pkg, imports := range checked {
		require.Contains(t, told, pkg)
		assert.ElementsMatch(t, imports, told[pkg], pkg)
	}
	assert.Len(t, told, len(checked), "a package is told of that is not")
}

// TestFilesOfAPackageExist: the table of files in a package's own documentation names no file
// that was moved or deleted.
func TestFilesOfAPackageExist(t *testing.T) {
	docs := must.Do(filepath.Glob("../internal/*/doc.go"))(t)
	require.NotEmpty(t, docs)
	named := 0
	for _, doc := range docs {
		text := must.Do(os.ReadFile(doc))(t)
		for _, line := range regexp.MustCompile(`(?m)^//\t.*$`).FindAllString(string(text), -1) {
			for _, file := range regexp.MustCompile(`\b\w+\.go\b`).FindAllString(line, -1) {
				named++
				assert.FileExists(t, filepath.Join(filepath.Dir(doc), file), "which %s names", doc)
			}
		}
	}
	assert.Greater(t, named, 100)
}

// names are the words in back quotes, without what follows in parentheses.
func names(cell string) (found []string) {
	cell = regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(cell, "")
	for _, m := range regexp.MustCompile("`([\\w/-]+)`").FindAllStringSubmatch(cell, -1) {
		found = append(found, m[1])
	}
	return found
}

// checkedImports is the table of internal/arch_test.go: for each package, what of
// internal/ it may import.
func checkedImports(t *testing.T) map[string][]string {
	t.Helper()
	f := must.Do(parser.ParseFile(token.NewFileSet(), "../internal/arch_test.go", nil, 0))(t)
	table := map[string][]string{}
	rules := f.Scope.Lookup("table")
	require.NotNil(t, rules, "arch_test.go has no table")
	ast.Inspect(rules.Decl.(*ast.ValueSpec), func(n ast.Node) bool {
		kv, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, isLit := kv.Key.(*ast.BasicLit)
		rule, isRule := kv.Value.(*ast.CompositeLit)
		if !isLit || !isRule || len(rule.Elts) != 2 {
			return true
		}
		pkg := must.Do(strconv.Unquote(key.Value))(t)
		table[pkg] = nil
		if list, ok := rule.Elts[0].(*ast.CompositeLit); ok {
			for _, e := range list.Elts {
				name := must.Do(strconv.Unquote(e.(*ast.BasicLit).Value))(t)
				table[pkg] = append(table[pkg], name)
			}
		}
		return false
	})
	return table
}
