package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// redactedAs is a file of a configuration as it may be shown.
func redactedAs(t *testing.T, name, text string) RedactedFile {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"fenced.yaml": "clusters:\n- {name: prod, kubeconfig: k}\nhosts: hosts.d\npolicies: policies.d\n"}
	files[name] = text
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, f := range Redacted(filepath.Join(dir, "fenced.yaml")) {
		if f.Name == name {
			return f
		}
	}
	require.Failf(t, "it is not among the files", name)
	return RedactedFile{}
}

// Wherever somebody has written a password by mistake, it is not shown. // I25
func TestNoSecretIsShown(t *testing.T) {
	const canary = "Canary-4711-Pw"
	for what, device := range map[string]string{
		"a comment":                  "address: 192.0.2.1 # " + canary,
		"a path":                     "passwordFile: /" + canary,
		"a credential":               "credential: " + canary,
		"a Secret":                   "secret: a/" + canary,
		"the file of a key":          "kgFile: /" + canary,
		"a key that is none":         "password: " + canary,
		"a word in place of a key":   canary + ": x",
		"a tree below a key":         "password: {is: [" + canary + "]}",
		"a tree in place of a text":  "username: {is: " + canary + "}",
		"a text in place of a tree":  "tls: " + canary,
		"a text in place of a list":  "cipherSuites: " + canary,
		"a list of others":           "cipherSuites: [" + canary + "]",
		"a text in place of a truth": "ignoreUUID: " + canary,
		"no word of the key":         "auth: " + canary,
		"a user information":         "address: ipmi://u:" + canary + "@192.0.2.1",
		"the query of a URL":         "address: redfish://192.0.2.1/?p=" + canary,
		"a tag":                      "username: !" + canary + " x",
		"an anchor":                  "username: &" + canary + " x",
		"a secret parameter":         "secretParameters: {community: /" + canary + "}",
		"a parameter":                "parameters: {community: " + canary + "}",
		"an unknown parameter":       "parameters: {mystery: " + canary + "}",
		"the name of a parameter":    "parameters: {\"" + canary + " x\": 1}",
		"a tree of parameters":       "parameters: {plug: [" + canary + "]}",
	} {
		f := redactedAs(t, "hosts.d/a.yaml", "hosts:\n- node: worker-3\n  bmc:\n    "+device+"\n")
		require.NoError(t, f.Err, what)
		assert.NotContains(t, string(f.Text), canary, what)
		assert.Contains(t, string(f.Text), "node: worker-3", what)
	}
	for name, text := range map[string]string{
		"policies.d/secret.yaml":     "kind: Secret\ndata: {password: " + canary + "}\n",
		"policies.d/list.yaml":       "- " + canary + "\n",
		"policies.d/word.yaml":       canary + "\n",
		"policies.d/comment.yaml":    "kind: FencePolicy # " + canary + "\n# " + canary + "\nspec: {} # " + canary + "\n",
		"policies.d/annotation.yaml": "kind: FencePolicy\nmetadata: {annotations: {other: " + canary + "}}\n",
		"conf.d/x.yaml":              "log: {level: " + canary + "}\nstate: {etcd: {endpoints: [\"https://u:" + canary + "@192.0.2.1:2379\"]}}\n",
		"fenced.yaml":                canary + "\n",
		"hosts.d/broken.yaml":        "a: [" + canary + "\n",
		"hosts.d/alias.yaml":         "hosts: *" + canary + "\n",
	} {
		f := redactedAs(t, name, text)
		assert.NotContains(t, string(f.Text), canary, name)
		if f.Err != nil {
			assert.NotContains(t, f.Err.Error(), canary, name)
		}
	}
}

// What is no secret is shown: a bundle without it helps nobody.
func TestConfigurationIsShown(t *testing.T) {
	text, err := os.ReadFile("../../configs/hosts.d/example.yaml")
	require.NoError(t, err)
	shown := string(redactedAs(t, "hosts.d/a.yaml", string(text)).Text)
	for _, want := range []string{"address: ", "username: fence", "driver: fence-agent", "plug: ", "cipherSuites: [17", "protected: "} {
		assert.Contains(t, shown, want)
	}
	assert.NotContains(t, shown, "/etc/fenced/credentials", "whose value may be a password by mistake")

	text, err = os.ReadFile("../../configs/fenced.yaml")
	require.NoError(t, err)
	shown = string(redactedAs(t, "fenced.yaml", string(text)).Text)
	assert.NotContains(t, shown, "redacted", "fenced.yaml has no secret")
	assert.Equal(t, strings.Count(withoutCommentLines(string(text)), ":"), strings.Count(shown, ":"), "every key is shown")

	shown = string(redactedAs(t, "policies.d/a.yaml", "kind: FencePolicy\nmetadata: {name: racks, annotations: {fenced.io/cluster: prod}}\nspec: {limit: 40%}\n").Text)
	for _, want := range []string{"kind: FencePolicy", "fenced.io/cluster: prod", "limit: 40%"} {
		assert.Contains(t, shown, want)
	}
}

// withoutCommentLines is a file without its comments.
func withoutCommentLines(text string) (rest string) {
	for line := range strings.Lines(text) {
		before, _, _ := strings.Cut(line, "#")
		rest += strings.TrimRight(before, "\n") + "\n"
	}
	return rest
}

// A directory with more files than somebody can read ends somewhere, and says so.
func TestShownFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fenced.yaml"), []byte("hosts: hosts.d\npolicies: \"\"\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "hosts.d"), 0o700))
	for i := range maxRedactedFiles + 3 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts.d", "h"+strings.Repeat("x", i)+".yaml"), nil, 0o600))
	}
	files := Redacted(filepath.Join(dir, "fenced.yaml"))
	require.Len(t, files, 1+maxRedactedFiles+1)
	assert.ErrorContains(t, files[len(files)-1].Err, "3 files of")
	require.NoError(t, os.Truncate(filepath.Join(dir, "fenced.yaml"), maxRedacted+1))
	files = Redacted(filepath.Join(dir, "fenced.yaml"))
	assert.ErrorContains(t, files[0].Err, "larger than")
}
