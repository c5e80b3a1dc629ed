package remediate

import (
	"go/ast"
	"go/parser"
	"go/token"
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

// reasonArgument is where a function of this package takes a reason code.
var reasonArgument = map[string]int{"stop": 1, "abandon": 1, "dropAttempt": 1, "finish": 2, "giveUpOnLevel": 2, "powerReason": 1}

// TestReasonsAreConstants: a reason code is stored and documented, so it is written once,
// in package reason. Everywhere else it is the constant.
func TestReasonsAreConstants(t *testing.T) {
	set := token.NewFileSet()
	files := product(t, ".", set)
	var codes []string
	for _, file := range product(t, "../reason", set) {
		codes = append(codes, stringLiterals(file)...)
	}
	code := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	codes = slices.DeleteFunc(codes, func(s string) bool { return !code.MatchString(s) })
	require.Greater(t, len(codes), 30, "the codes were not found")
	for _, kind := range []string{"run.go", "observation.go"} { // steps and actions have the same form
		for _, name := range stringLiterals(files[kind]) {
			codes = slices.DeleteFunc(codes, func(code string) bool { return code == name })
		}
	}
	calls := map[string]int{}
	for name, file := range files {
		for _, s := range stringLiterals(file) {
			assert.NotContains(t, codes, s, "%s: a raw reason code; use the constant", name)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			id, ok := call.Fun.(*ast.Ident)
			if !ok {
				return true
			}
			if i, ok := reasonArgument[id.Name]; ok {
				calls[id.Name]++
				assert.Empty(t, stringLiterals(call.Args[i]), "%s: a raw reason code; use a constant of package reason", set.Position(call.Pos()))
			}
			return true
		})
	}
	for name := range reasonArgument {
		assert.Positive(t, calls[name], "nobody calls %s: take it out of this test", name)
	}
}

// product are the parsed files of a package without its tests.
func product(t *testing.T, dir string, set *token.FileSet) map[string]*ast.File {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string]*ast.File{}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go") {
			files[e.Name()], err = parser.ParseFile(set, filepath.Join(dir, e.Name()), nil, 0)
			require.NoError(t, err)
		}
	}
	return files
}

// stringLiterals are the strings below a node that are not empty, imports apart.
func stringLiterals(n ast.Node) (found []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && s != "" {
				found = append(found, s)
			}
		}
		return true
	})
	return found
}
