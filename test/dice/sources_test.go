package dice

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

const root = "../.."

// unseeded are calls of random sources that FENCED_SEED does not seed, by package.
var unseeded = map[string]func(name string) bool{
	"math/rand": func(string) bool { return true },
	"math/rand/v2": func(name string) bool {
		return !slices.Contains([]string{"New", "NewPCG", "Rand", "PCG", "Source"}, name)
	},
	"pgregory.net/rapid": func(name string) bool { return name == "Check" || name == "MakeCheck" },
	"testing/quick":      func(string) bool { return true },
}

// allowed are the files that may call them: the two that give all others their seed.
var allowed = []string{"test/dice/dice.go", "test/law/law.go"}

// TestNoOtherDice: a test with a random source of its own can fail without a defect, and
// its failure cannot be repeated.
func TestNoOtherDice(t *testing.T) {
	found := map[string]bool{}
	eachTestFile(t, func(path string, f *ast.File, set *token.FileSet) {
		names := map[string]string{} // of the packages that it imports
		for _, spec := range f.Imports {
			p := must.Do(strconv.Unquote(spec.Path.Value))(t)
			name := filepath.Base(strings.TrimSuffix(p, "/v2"))
			if spec.Name != nil {
				name = spec.Name.Name
			}
			assert.False(t, name == "." && unseeded[p] != nil, "%s: a dot import of %s", path, p)
			names[name] = p
		}
		ast.Inspect(f, func(n ast.Node) bool {
			x, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			id, ok := x.X.(*ast.Ident)
			if !ok || unseeded[names[id.Name]] == nil || !unseeded[names[id.Name]](x.Sel.Name) {
				return true
			}
			if slices.Contains(allowed, path) {
				found[path] = true
				return true
			}
			t.Errorf("%s: %s.%s: take the random source of test/dice, and law.Check for rapid.Check", set.Position(x.Pos()), id.Name, x.Sel.Name)
			return true
		})
	})
	assert.ElementsMatch(t, allowed, slices.Collect(maps.Keys(found)), "the files that this test knows")
}

// TestNoFailureIsRemembered: rapid reads each file that it finds there before its own
// worlds, also one of a law that is no longer the same.
func TestNoFailureIsRemembered(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasSuffix(filepath.ToSlash(path), "testdata/rapid") {
			t.Errorf("%s: make it a fixed case, and remove it", path)
		}
		return err
	})
	require.NoError(t, err)
}

// TestFuzzTargetsHaveSeeds: without fuzzing, a target is tried with its seeds only.
func TestFuzzTargetsHaveSeeds(t *testing.T) {
	targets, seeded, helpers := map[string]*ast.FuncDecl{}, map[string]bool{}, map[string]bool{}
	eachTestFile(t, func(path string, f *ast.File, _ *token.FileSet) {
		dir := filepath.ToSlash(filepath.Dir(path))
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || parameter(fn) == "" {
				continue
			}
			name := dir + "." + fn.Name.Name
			if !strings.HasPrefix(fn.Name.Name, "Fuzz") {
				helpers[name] = adds(fn, nil)
				continue
			}
			targets[name] = fn
			entries, err := os.ReadDir(filepath.Join(root, dir, "testdata", "fuzz", fn.Name.Name))
			if err != nil {
				require.ErrorIs(t, err, fs.ErrNotExist)
			}
			seeded[name] = len(entries) > 0
		}
	})
	require.Greater(t, len(targets), 10, "the targets were not found")
	for name, fn := range targets {
		dir, _, _ := strings.Cut(name, ".")
		assert.True(t, seeded[name] || adds(fn, func(helper string) bool { return helpers[dir+"."+helper] }), "%s has no seeds", name)
	}
}

// parameter is the name of a function's *testing.F, "" if it has none.
func parameter(fn *ast.FuncDecl) string {
	for _, p := range fn.Type.Params.List {
		star, ok := p.Type.(*ast.StarExpr)
		if !ok || len(p.Names) == 0 {
			continue
		}
		if x, ok := star.X.(*ast.SelectorExpr); ok && x.Sel.Name == "F" {
			return p.Names[0].Name
		}
	}
	return ""
}

// adds says whether a function calls Add of its *testing.F, or gives it to a helper
// that does.
func adds(fn *ast.FuncDecl, helper func(name string) bool) (yes bool) {
	f := parameter(fn)
	is := func(x ast.Expr) bool { id, ok := x.(*ast.Ident); return ok && id.Name == f }
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch x := call.Fun.(type) {
		case *ast.SelectorExpr:
			yes = yes || x.Sel.Name == "Add" && is(x.X)
		case *ast.Ident:
			yes = yes || helper != nil && helper(x.Name) && slices.ContainsFunc(call.Args, is)
		}
		return true
	})
	return yes
}

// eachTestFile parses every Go file that only tests, and what they start, are built of.
func eachTestFile(t *testing.T, visit func(path string, f *ast.File, set *token.FileSet)) {
	t.Helper()
	helpers := []string{"test/", "internal/bmc/bmctest/", "internal/state/statetest/", "internal/failpoint/"}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if !strings.HasSuffix(name, "_test.go") && !slices.ContainsFunc(helpers, func(h string) bool { return strings.HasPrefix(name, h) }) {
			return nil
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, 0)
		if err == nil {
			visit(name, f, set)
		}
		return err
	})
	require.NoError(t, err)
}

func TestSeed(t *testing.T) {
	for _, row := range []struct {
		name, given string
		soak        bool
		want        uint64
	}{
		{"go test", "", false, fixed},
		{"a seed again", "17", false, 17},
		{"a seed of a soak again", "17", true, 17},
	} {
		got := must.Do(choose(row.given, row.soak))(t)
		assert.Equal(t, row.want, got, row.name)
	}
	first := must.Do(choose("", true))(t)
	second := must.Do(choose("", true))(t)
	assert.NotEqual(t, first, second, "fresh") // the same once in 2^48
	_, err := choose("x", false)
	assert.ErrorContains(t, err, "FENCED_SEED")
}

func TestNewDependsOnItsArguments(t *testing.T) {
	first := New(t, 1).Uint64()
	assert.Equal(t, first, New(t, 1).Uint64())
	assert.NotEqual(t, first, New(t, 2).Uint64())
	if !Soak() {
		assert.Equal(t, uint64(0xb4c9df15181874ea), first, "the same on every machine")
	}
}
