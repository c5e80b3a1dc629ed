package docs_test

import (
	"go/ast"
	"maps"
	"os"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNamedTestsOfTheMakefileExist: go test runs nothing for a name that no test has, and says nothing.
func TestNamedTestsOfTheMakefileExist(t *testing.T) {
	all := slices.Collect(maps.Keys(testNames(t)))
	text, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	named := 0
	for _, m := range regexp.MustCompile(`(?m)(?:-run '|^ALONE := )(.*?)(?:'|$)`).FindAllStringSubmatch(string(text), -1) {
		pattern := strings.ReplaceAll(m[1], "$$", "$")
		if pattern == "^$" || pattern == "$(ALONE)" { // no test at all, or a line of its own
			continue
		}
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		require.NoError(t, err, pattern)
		whole := strings.HasSuffix(pattern, "$")
		for _, name := range alternatives(t, parsed) {
			named++
			assert.True(t, slices.ContainsFunc(all, func(test string) bool { return test == name || !whole && strings.HasPrefix(test, name) }),
				"the Makefile runs %s, which is no test", name)
		}
	}
	require.Greater(t, named, 10, "the names of tests were not found")
}

func testNames(t *testing.T) map[string]bool {
	t.Helper()
	exists := map[string]bool{}
	walk(t, isTestFile, func(_ string, f *ast.File) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				exists[fn.Name.Name] = true
			}
		}
	})
	return exists
}

// alternatives are all that a pattern of alternatives matches.
func alternatives(t *testing.T, re *syntax.Regexp) []string {
	t.Helper()
	switch re.Op {
	case syntax.OpBeginText, syntax.OpBeginLine, syntax.OpEndText, syntax.OpEndLine, syntax.OpEmptyMatch:
		return []string{""}
	case syntax.OpLiteral:
		return []string{string(re.Rune)}
	case syntax.OpCharClass: // what the parser makes of A|B
		var all []string
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				all = append(all, string(r))
			}
		}
		return all
	case syntax.OpCapture:
		return alternatives(t, re.Sub[0])
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			all = append(all, alternatives(t, sub)...)
		}
		return all
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range re.Sub {
			var longer []string
			for _, begin := range all {
				for _, end := range alternatives(t, sub) {
					longer = append(longer, begin+end)
				}
			}
			all = longer
		}
		return all
	default:
		require.FailNow(t, "a pattern of the Makefile is not a list of names", "%s", re)
		return nil
	}
}
