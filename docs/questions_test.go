package docs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/must"
)

// questions are those of an operator who has only the README: where each is answered, and what the section says.
var questions = []struct{ asked, file, heading, says string }{
	{"I must reboot a node. Will it be fenced?", "maintenance.md", "one-node", "fencectl hold"},
	{"A whole rack loses its power on Saturday. What now?", "maintenance.md", "a-rack-or-several-nodes", "--all-in-rack"},
	{"We upgrade Kubernetes. Must I stop fenced?", "maintenance.md", "an-upgrade-of-kubernetes", "kubeadm"},
	{"A node is dead. Why is it not fenced?", "troubleshooting.md", "a-dead-node-is-not-fenced", "fencectl explain"},
	{"How do I stop everything, now?", "stop-and-override.md", "what-every-stop-guarantees", "fencectl pause"},
	{"The BMC is dead, too. How do I get the volumes free?", "stop-and-override.md", "confirm-by-hand-that-a-host-is-off", "fencectl confirm-off"},
	{"A run is Held. What do I do?", "six-steps.md", "when-a-run-is-held", "`unfence`"},
	{"What becomes of the volumes of Rook?", "storage.md", "rook-and-ceph-csi", "NetworkFence"},
	{"Does it work with my version of Kubernetes?", "systems.md", "kubernetes-versions", "| tested |"},
	{"How do I rotate the password of a BMC?", "day-to-day.md", "rotate-passwords-tokens-and-certificates", "at the next use"},
	{"What happened to this node two months ago?", "day-to-day.md", "how-far-back-it-reaches", "fencectl history"},
	{"Why not medik8s, Metal3 or Pacemaker?", "compare.md", "why-not-medik8s-metal3-or-pacemaker", "Pacemaker"},
}

// TestQuestionsAreAnsweredInTwoHops: from the table of the README at most two links lead to each answer, and it says
// what it should.
func TestQuestionsAreAnsweredInTwoHops(t *testing.T) {
	all := documents(t)
	_, table, found := strings.Cut(all["../README.md"], "\n## Find what you need\n")
	require.True(t, found, "the table was not found")
	table, _, _ = strings.Cut(table, "\n## ")
	first := linksOf("../README.md", table)
	require.Greater(t, len(first), 20, "the links of the table were not found")
	second := slices.Clone(first)
	for _, link := range first {
		file, _, _ := strings.Cut(link, "#")
		second = append(second, linksOf(file, all[file])...)
	}
	require.Len(t, questions, 12)
	for _, q := range questions {
		assert.True(t, slices.Contains(second, q.file) || slices.Contains(second, q.file+"#"+q.heading),
			"%s: no two links lead from the README's table to %s", q.asked, q.file)
		assert.Contains(t, section(all[q.file], q.heading), q.says, "%s: %s#%s does not answer it", q.asked, q.file, q.heading)
	}
	assert.Empty(t, section(all["storage.md"], "no-such-heading"), "a heading that is gone is noticed")
}

// linksOf are the documents, with heading if the link names one, to which a text in a file leads, by path as documents has them.
func linksOf(file, text string) (all []string) {
	for _, m := range regexp.MustCompile(`\]\(([^)\s]+\.md(?:#[^)\s]+)?)\)`).FindAllStringSubmatch(fencedBlock.ReplaceAllString(text, ""), -1) {
		if !strings.Contains(m[1], "://") {
			all = append(all, strings.TrimPrefix(path.Join(path.Dir(file), m[1]), "../docs/"))
		}
	}
	return all
}

// section is what stands below a heading of a document, up to the next one of its level or above.
func section(text, heading string) string {
	lines := strings.Split(fencedBlock.ReplaceAllString(text, ""), "\n")
	level := func(line string) int { return len(line) - len(strings.TrimLeft(line, "#")) }
	begin := slices.IndexFunc(lines, func(line string) bool { return slices.Contains(anchors(line), heading) })
	if begin < 0 {
		return ""
	}
	end := slices.IndexFunc(lines[begin+1:], func(line string) bool { return len(anchors(line)) > 0 && level(line) <= level(lines[begin]) })
	if end < 0 {
		end = len(lines) - begin - 1
	}
	return strings.Join(lines[begin+1:begin+1+end], "\n")
}

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
			if name, rest, _ := strings.Cut(f, "("); strings.HasPrefix(name, "Test") && (strings.Contains(rest, "onStandIn(") || strings.Contains(rest, "inMemory")) {
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

// simulate runs fencectl on one of the samples, which has a node to remediate.
func simulate(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(must.Do(fencectl())(t), append([]string{"simulate"}, args...)...).Output()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), err)
	require.Equal(t, 2, exit.ExitCode(), "something would be done; %s", exit.Stderr)
	return string(out)
}

// TestREADMEShowsWhatSimulatePrints: the output in the README is that of the command above it, but for the time.
func TestREADMEShowsWhatSimulatePrints(t *testing.T) {
	const installed = "/usr/share/fenced/samples/"
	m := regexp.MustCompile(`(?m)^    fencectl simulate --objects ` + installed + `(\S+)\n\n((?:    .*\n|\n)+)`).FindStringSubmatch(documents(t)["../README.md"])
	require.NotNil(t, m, "the README has no such command")
	clock := regexp.MustCompile(`^evaluated at \S+`)
	shown := clock.ReplaceAllString(regexp.MustCompile(`(?m)^    `).ReplaceAllString(m[2], ""), "")
	printed := clock.ReplaceAllString(simulate(t, "--objects", "../configs/samples/"+m[1]), "")
	assert.Equal(t, strings.TrimSpace(printed), strings.TrimSpace(shown))
}

// TestSamples: each has one dead node of three, which nothing keeps from being fenced, and one check of another API.
func TestSamples(t *testing.T) {
	asks := map[string]policy.Action{
		"machine.openshift.io/v1beta1": policy.PowerCycle, "fenced.io/v1alpha1": policy.PowerCycle,
		"cluster.x-k8s.io/v1beta2": policy.CreateRequest, "remediation.medik8s.io/v1alpha1": policy.CreateRequest,
	}
	for _, file := range must.Do(filepath.Glob("../configs/samples/*.yaml"))(t) {
		var r policy.Report
		require.NoError(t, json.Unmarshal([]byte(simulate(t, "--objects", file, "-o", "json")), &r))
		assert.Empty(t, r.Errors, file)
		require.Len(t, r.Checks, 1, file)
		require.Len(t, r.Checks[0].Targets, 3, file)
		dead := r.Checks[0].Targets[1]
		assert.Equal(t, policy.Unhealthy, dead.Verdict, file)
		assert.Empty(t, dead.Refusals, file)
		api := r.Checks[0].APIVersion
		assert.Equal(t, asks[api], dead.Action, file)
		delete(asks, api)
	}
	assert.Empty(t, asks, "these have no sample")
}
