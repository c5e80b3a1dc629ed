// Package recipes follows the recipes of CONTRIBUTING.md: it adds a power driver, an API family of health checks and a verb to
// a copy of the project, and counts the existing files that each of them edits.
package recipes

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

// rows are the tests that a recipe says fail until its list is done, and those that use what was added.
const rows = "^(TestEveryDriverIsOpened|TestEveryDriverHasARow|TestEverySchemeHasARow|TestImportTable|" +
	"TestCorpus|TestEachRightIsUsed|TestRightsByMode|" +
	"TestEveryRowRefusesLowerRoles|TestEveryVerbIsCarriedOut|TestManPageTellsTheRoles|TestManPagesHaveEveryFlag)$"

func TestRecipes(t *testing.T) {
	root := copyOfProject(t)
	text := must.Do(os.ReadFile("../../CONTRIBUTING.md"))(t)
	for name, most := range map[string]int{"driver": 4, "family": 6, "verb": 6} {
		archive := must.Do(txtar.ParseFile("testdata/" + name + ".txtar"))(t)
		edited := map[string]bool{}
		for _, f := range archive.Files {
			path, isEdit := strings.CutPrefix(f.Name, "edit ")
			if !isEdit {
				add(t, filepath.Join(root, path), f.Data)
				continue
			}
			edit(t, filepath.Join(root, path), string(f.Data))
			edited[path] = true
			assert.True(t, strings.Contains(string(text), "`"+path+"`"), "the recipe of a %s does not name %s", name, path)
		}
		assert.LessOrEqual(t, len(edited), most, "a %s edits too many files", name)
	}
	if os.Getenv("FENCED_RECIPES") != "build" {
		return // make soak builds the copy and runs its tests; that takes minutes
	}
	for _, args := range [][]string{
		{"test", "./internal/k8swatch", "-run", "^TestRightsByMode$", "-update"}, // as make golden does
		{"test", "./docs", "./internal", "./internal/policy", "./internal/api", "./internal/k8swatch", "./cmd/fenced", "-run", rows},
		{"test", "./cmd/fencectl", "-run", "^TestScript$/^nudge$"},
	} {
		c := exec.CommandContext(t.Context(), "go", args...)
		c.Dir, c.Env = root, append(os.Environ(), "FENCED_PROGRAMS=") // those are of this tree, not of the copy
		out, err := c.CombinedOutput()
		require.NoError(t, err, "go %s: %s", strings.Join(args, " "), out)
	}
}

// copyOfProject copies what belongs to the project, without what a build or an editor left.
func copyOfProject(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(path, filepath.Join("..", "..")+string(filepath.Separator))
		switch {
		case err != nil || path == filepath.Join("..", ".."):
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin"}, rel):
			return fs.SkipDir
		case d.IsDir():
			return os.Mkdir(filepath.Join(to, rel), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o600)
	}))
	return to
}

func add(t *testing.T, path string, data []byte) {
	t.Helper()
	require.NoFileExists(t, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	data = regexp.MustCompile(`(?m)^== (.+) ==$`).ReplaceAll(data, []byte("-- $1 --")) // an archive in an archive
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

// edit changes places of a file. One that begins with "@ " and a text adds its lines below the line with that text; one with
// "~ " writes its line in place of the text.
func edit(t *testing.T, path, places string) {
	t.Helper()
	data := must.Do(os.ReadFile(path))(t)
	text := string(data)
	for _, m := range regexp.MustCompile(`(?m)^([@~]) (.+)\n((?:[^@~].*\n)+)`).FindAllStringSubmatch(places, -1) {
		old, lines := m[2], m[3]
		at := strings.Index(text, old)
		require.GreaterOrEqual(t, at, 0, "%s has no %q", path, old)
		if m[1] == "~" {
			text = text[:at] + strings.TrimSuffix(lines, "\n") + text[at+len(old):]
			continue
		}
		at += strings.Index(text[at:], "\n") + 1
		text = text[:at] + lines + text[at:]
	}
	require.NotEqual(t, string(data), text)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}
