package docs_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
