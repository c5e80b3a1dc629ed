package e2e

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// fencectl runs a verb and checks its exit status.
func fencectl(ctx context.Context, t *testing.T, s *scene.Scene, exit int, args ...string) scene.Result {
	t.Helper()
	r, err := s.Fencectl(ctx, args...)
	require.NoError(t, err)
	require.Equal(t, exit, r.Exit, "fencectl %v\n%s\n%s", args, r.Stdout, r.Stderr)
	return r
}

// What people order: pause and resume, off and on again.
func TestPeopleGiveOrders(t *testing.T) {
	t.Parallel()
	s := set(t, scene.Options{Workers: []scene.Spec{
		{Name: "bystander", Protocol: scene.IPMI}, {Name: "ordered", Protocol: scene.Redfish, Metal3: true, SeldomRenews: true},
	}})
	ctx := within(t)
	_, err := s.StartDaemon(ctx)
	require.NoError(t, err)
	w := s.Worker("ordered")
	requireGoodStatus(ctx, t, s)
	requireUnknownNames(ctx, t, s)

	fencectl(ctx, t, s, 0, "pause", "--reason", "maintenance")
	st := requireStatus(ctx, t, s, 2)
	assert.True(t, st.Paused)
	assert.Contains(t, st.PausedReason, "maintenance")
	refused := fencectl(ctx, t, s, 3, "fence", w.Name, "--yes", "--reason", "test")
	assert.Contains(t, refused.Stderr, "Paused")
	fencectl(ctx, t, s, 0, "resume", "--reason", "over")

	fencectl(ctx, t, s, 64, "fence", w.Name, "--yes")
	dry := fencectl(ctx, t, s, 0, "fence", w.Name, "--dry-run", "--reason", "test")
	assert.Contains(t, dry.Stdout, "identity")
	require.True(t, w.BMC.Power())

	off := fencectl(ctx, t, s, 0, "fence", w.Name, "--off-only", "--wait", "--yes", "--reason", "disk fails")
	assert.Contains(t, off.Stdout, "2/6 DeleteNode")
	assert.False(t, w.BMC.Power())
	requireOneDeletion(t, s, w)
	st = requireStatus(ctx, t, s, 2)
	require.Len(t, st.Runs, 1)
	assert.Equal(t, "Held", st.Runs[0].Step)
	assert.Equal(t, "OperatorOff", st.Runs[0].Reason)
	x, err := s.Explain(ctx, w.Name)
	require.NoError(t, err)
	assert.Equal(t, "OperatorOff", x.Refused)

	fencectl(ctx, t, s, 0, "unfence", w.Name, "--wait", "--reason", "disk replaced")
	assert.True(t, w.BMC.Power())
	requireBack(ctx, t, s, w)
	requireOneDeletion(t, s, w)
	requireGoodStatus(ctx, t, s)
	untouched(ctx, t, s, s.Worker("bystander"))
}

// requireUnknownNames gives orders for what is not there: exit statuses and words are
// a contract with scripts.
func requireUnknownNames(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	for _, tc := range []struct {
		order []string
		exit  int
		want  string
	}{
		{[]string{"fence", "typo", "--yes"}, 1, "no Node is named typo"},
		{[]string{"unfence", "typo"}, 7, "no run is open on typo"},
		{[]string{"confirm-off", "typo", "--yes"}, 1, "no Node is named typo"},
		{[]string{"abort", "ty-po"}, 1, "no run ty-po"},
		{[]string{"retry", "ty-po"}, 1, "no run ty-po"},
		{[]string{"release", "typo"}, 7, "nobody holds typo"},
		{[]string{"hold", "typo"}, 0, "fenced sees no Node of this name now"},
		{[]string{"release", "typo"}, 0, "typo is no longer held"},
		{[]string{"pause", "--cluster", "typo"}, 1, `no cluster "typo" is configured`},
		{[]string{"hold", "bystander", "--cluster", "typo"}, 1, `no cluster "typo" is configured`},
	} {
		r := fencectl(ctx, t, s, tc.exit, append(tc.order, "--reason", "test")...)
		assert.Contains(t, r.Stdout+r.Stderr, tc.want, "fencectl %v", tc.order)
	}
}

func requireStatus(ctx context.Context, t *testing.T, s *scene.Scene, exit int) wire.Status {
	t.Helper()
	r := fencectl(ctx, t, s, exit, "status", "-o", "json")
	var st wire.Status
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &st))
	return st
}

// requireGoodStatus waits until the first view is whole, then checks what a
// status says when all is well.
func requireGoodStatus(ctx context.Context, t *testing.T, s *scene.Scene) {
	t.Helper()
	require.Eventually(t, func() bool {
		st, err := s.Status(ctx)
		return err == nil && len(st.Degraded()) == 0 && len(st.Clusters) == 1 && len(st.Clusters[0].Checks) == 1 &&
			st.Clusters[0].Checks[0].Healthy == len(s.Workers)
	}, patience, 100*time.Millisecond)
	st := requireStatus(ctx, t, s, 0)
	assert.True(t, st.Armed)
	assert.False(t, st.Paused)
	assert.Empty(t, st.Runs)
	c := st.Clusters[0]
	assert.Equal(t, scene.ClusterName, c.Name)
	assert.Equal(t, "evaluate", c.Mode)
	assert.Equal(t, len(s.Workers), c.Nodes)
	assert.True(t, c.Checks[0].Allowed)
	assert.Equal(t, len(s.Workers), c.Checks[0].Expected)
}
