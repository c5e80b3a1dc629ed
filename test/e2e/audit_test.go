package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// The audit log tells a fence from the decision to the end, and whoever changes it
// is found, with the daemon running and without it. // I24
func TestAuditLogTellsAndIsProven(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "hung", Protocol: scene.IPMI},
		{Name: "ordered", Protocol: scene.Redfish, Metal3: true},
		{Name: "healthy", Protocol: scene.IPMI},
	}})
	ctx := within(t)
	d, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	s.Worker("hung").Kubelet.Hang()
	awaitRun(ctx, t, s, "hung", result(wire.ResultDone))
	log := filepath.Join(filepath.Dir(s.Config()), "audit.jsonl")
	exported := strings.TrimSpace(fencectl(ctx, t, s, 0, "audit", "show", "--head", "--file", log).Stdout)
	fencectl(ctx, t, s, 0, "audit", "verify", "--config", s.Config(), "--head", exported)

	d.Kill()
	_, err = s.StartDaemon(ctx)
	require.NoError(t, err)
	requireGoodStatus(ctx, t, s)
	s.Worker("ordered").Kubelet.Hang()
	fencectl(ctx, t, s, 0, "fence", "ordered", "--reason", "it smells", "--yes", "--wait", "--timeout", "2m")
	proof := fencectl(ctx, t, s, 0, "audit", "verify", "--file", log, "--head", exported)
	assert.Contains(t, proof.Stdout, "are as they were written")

	requireStory(t, entriesOf(t, log, "hung"), "Started", "SendOff", "BackupNode", "IsolateNode", "SendOn", "Done")
	ordered := entriesOf(t, log, "ordered")
	requireStory(t, ordered, "Order", "Started", "SetHold", "SendOff", "BackupNode", "IsolateNode", "SendOn", "Done")
	order := ordered[0]
	assert.NotEmpty(t, order.Actor)
	assert.Equal(t, "it smells", order.Why)
	for _, e := range append(entriesOf(t, log, "hung"), ordered...) {
		switch {
		case e.Type == "Started":
			assert.Greater(t, len(e.Gates), 10, "the decision carries every gate that was asked")
			for _, g := range e.Gates {
				assert.True(t, g.Pass, "%+v", g)
			}
		case e.Action == "IsolateNode":
			assert.Contains(t, e.Inputs, "power=Off")
			assert.Contains(t, e.Inputs, "proven=true")
		}
	}

	original, err := os.ReadFile(log)
	require.NoError(t, err)
	forged := filepath.Join(t.TempDir(), "audit.jsonl")
	for what, change := range map[string]func([]byte) []byte{
		"edited": func(b []byte) []byte { return bytes.Replace(b, []byte("it smells"), []byte("it stinks"), 1) },
		"line gone": func(b []byte) []byte {
			i := bytes.IndexByte(b, '\n') + 1
			return append(b[:i:i], b[bytes.Index(b[i:], []byte("\n"))+i+1:]...)
		},
		"end gone": func(b []byte) []byte { return b[:bytes.IndexByte(b, '\n')+1] },
	} {
		require.NoError(t, os.WriteFile(forged, change(bytes.Clone(original)), 0o600))
		r := fencectl(ctx, t, s, 1, "audit", "verify", "--file", forged, "--head", exported)
		assert.Contains(t, r.Stderr, "the audit log is broken", what)
	}
}

// entriesOf gives what the log tells of a Node.
func entriesOf(t *testing.T, log, node string) (all []audit.Entry) {
	t.Helper()
	_, err := audit.Walk(log, func(l audit.Line) error {
		if l.Entry.Node == node {
			all = append(all, l.Entry)
		}
		return nil
	})
	require.NoError(t, err)
	return all
}

// requireStory checks that the entries have these types, actions or steps, in this
// order, others between them.
func requireStory(t *testing.T, all []audit.Entry, want ...string) {
	t.Helper()
	left := want
	for _, e := range all {
		if len(left) > 0 && (e.Type == left[0] || e.Action == left[0] || e.Step == left[0]) {
			left = left[1:]
		}
	}
	text, err := json.MarshalIndent(all, "", " ")
	require.NoError(t, err)
	require.Empty(t, left, "of %v, in\n%s", want, text)
}
