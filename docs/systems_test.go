package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

// TestDocumentedManifestsAreApplied: a live test applies each manifest of the systems, and every
// manifest has the comment by which the test finds it. Other blocks are parts of fenced.yaml.
func TestDocumentedManifestsAreApplied(t *testing.T) {
	tests := must.Do(filepath.Glob("../test/e2e/*_test.go"))(t)
	var code strings.Builder
	for _, file := range tests {
		text := must.Do(os.ReadFile(file))(t)
		code.Write(text)
	}
	named := 0
	for file, text := range documents(t) {
		if !strings.HasPrefix(file, "systems") {
			continue
		}
		for _, m := range regexp.MustCompile("(?:<!-- test: (\\S+) -->\n *)?```yaml\n *(\\w+):").FindAllStringSubmatch(text, -1) {
			if m[1] == "" {
				assert.NotEqual(t, "apiVersion", m[2], "%s has a manifest that no comment names", file)
				continue
			}
			named++
			assert.Contains(t, code.String(), `(t, "`+m[1]+`")`, "%s: no live test applies the manifest %s", file, m[1])
		}
	}
	require.Greater(t, named, 7, "the manifests were not found")
}

// TestQuickStartsAreFollowed: a live test types the commands of each quick start.
func TestQuickStartsAreFollowed(t *testing.T) {
	code := must.Do(os.ReadFile("../test/e2e/quickstart_test.go"))(t)
	pages := must.Do(filepath.Glob("quickstart/*.md"))(t)
	require.Greater(t, len(pages), 3, "the quick starts were not found")
	for _, page := range pages {
		assert.Contains(t, string(code), `follow(ctx, "`+strings.TrimSuffix(filepath.Base(page), ".md")+`")`, "no live test follows %s", page)
	}
}

// TestScenesOnTheStandInAreNamed: testing.md names the tests that need no real control plane, and says why.
func TestScenesOnTheStandInAreNamed(t *testing.T) {
	var code, named []string
	for _, file := range must.Do(filepath.Glob("../test/e2e/*_test.go"))(t) {
		for _, f := range strings.Split(string(must.Do(os.ReadFile(file))(t)), "\nfunc ")[1:] {
			if name, rest, _ := strings.Cut(f, "("); strings.HasPrefix(name, "Test") && strings.Contains(rest, "onStandIn(") {
				code = append(code, name)
			}
		}
	}
	_, table, found := strings.Cut(documents(t)["testing.md"], "| On the stand-in |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		tests, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		named = append(named, regexp.MustCompile(`Test\w+`).FindAllString(tests, -1)...)
	}
	require.NotEmpty(t, code)
	assert.ElementsMatch(t, code, named)
}

// TestTestedVersionsAreNamed: systems.md names the version of Kubernetes that the tests run, that of the client, and that of
// the Cluster API.
func TestTestedVersionsAreNamed(t *testing.T) {
	versions := section(documents(t)["systems.md"], "kubernetes-versions")
	for _, in := range []struct{ file, version, row string }{
		{"../test/rig/build.go", `(?m)^const kubernetesVersion = "v([\d.]+)"$`, "| tested | %s |"},
		{"../go.mod", `(?m)^\tk8s\.io/client-go v0\.(\d+)\.`, "| the client of fenced | 1.%s |"},
		{"../test/clusterapi/go.mod", `(?m)^require sigs\.k8s\.io/cluster-api v([\d.]+)$`, "the manager %s "},
	} {
		text := must.Do(os.ReadFile(in.file))(t)
		m := regexp.MustCompile(in.version).FindSubmatch(text)
		require.NotNil(t, m, "%s: the version was not found", in.file)
		assert.Contains(t, versions, fmt.Sprintf(in.row, m[1]), "%s", in.file)
	}
}
