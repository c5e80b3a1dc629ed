package docs_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNamedPathsExist: a recipe that sends somebody to a file which was moved helps
// nobody.
func TestNamedPathsExist(t *testing.T) {
	named := 0
	for _, m := range regexp.MustCompile("`([^` ]+)`").FindAllStringSubmatch(documents(t)["../CONTRIBUTING.md"], -1) {
		path := m[1]
		top, _, nested := strings.Cut(path, "/")
		if !nested && !strings.HasSuffix(path, ".md") && path != "go.mod" {
			continue
		}
		if nested && !slices.Contains([]string{"cmd", "configs", "docs", "internal", "packaging", "test"}, top) {
			continue
		}
		named++
		found, err := filepath.Glob("../" + path)
		require.NoError(t, err)
		assert.NotEmpty(t, found, "CONTRIBUTING.md names %s", path)
	}
	require.Greater(t, named, 40, "the paths were not found")
}
