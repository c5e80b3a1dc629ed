package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/rig"
	"github.com/fenced/fenced/test/scene"
)

// A site observes first, then arms. The report that it decides on is read off the log of the daemon: a Node that recovered by
// itself, one that was fenced, one that a person holds, a limit that closed, and a restart. So are the entries of one run.
func TestReportOfAPeriod(t *testing.T) {
	t.Parallel()
	small := scene.Metal("2s")
	small.Name, small.Match, small.MaxUnhealthy = "small", scene.Pool("small"), int64(1)
	s := onStandIn(t, scene.Options{
		Mode: "observe", Set: []string{"guards.quietPeriod=1s"}, Checks: []rig.Check{scene.Metal("2s"), small},
		Workers: []scene.Spec{
			{Name: "observed", Protocol: scene.IPMI}, {Name: "fenced", Protocol: scene.IPMI}, {Name: "held", Protocol: scene.IPMI},
			{Name: "small-1", Pool: "small", Protocol: scene.IPMI}, {Name: "small-2", Pool: "small", Protocol: scene.IPMI},
			{Name: "healthy-1", Protocol: scene.IPMI}, {Name: "healthy-2", Protocol: scene.IPMI}, {Name: "healthy-3", Protocol: scene.IPMI},
		},
	})
	ctx := within(t)
	d := must.Do(s.StartDaemon(ctx))(t)
	observed, fenced := s.Worker("observed"), s.Worker("fenced")

	for _, name := range []string{"small-1", "small-2"} {
		s.Worker(name).Kubelet.Hang()
		awaitRefusal(ctx, t, s, "small-1", map[string]string{"small-1": "Observing", "small-2": "ShortCircuit"}[name])
	}
	observed.Kubelet.Hang()
	awaitRefusal(ctx, t, s, observed.Name, "Observing")
	for _, name := range []string{observed.Name, "small-1", "small-2"} { // somebody presses the button
		rebootByHand(ctx, t, s, s.Worker(name))
	}
	r := awaitReport(ctx, t, s, func(r wire.PeriodReport) bool { // the daemon has seen all of them come back
		return r.Would.ByOutcome[wire.OutcomeOpen] == 0 && !slices.ContainsFunc(r.Refused, func(in wire.RefusedReason) bool { return in.Now > 0 }) &&
			!slices.ContainsFunc(r.Limits, func(l wire.LimitsOfACheck) bool { return l.Lasts })
	})
	assert.Equal(t, map[string]int{wire.OutcomeRecovered: r.Would.Count}, r.Would.ByOutcome)
	var nodes []string // small-2 may be among them: until it is back, the limit is open again
	for _, o := range r.Would.List {
		nodes = append(nodes, o.Node)
	}
	assert.Subset(t, nodes, []string{observed.Name, "small-1"})
	seen := r.Would
	assert.Zero(t, r.Fenced.Count)

	fencectl(ctx, t, s, 0, "hold", "held", "--reason", "a disk is replaced")
	fencectl(ctx, t, s, 0, "arm", "--yes", "--reason", "two weeks of evidence")
	d.Kill()
	must.Do(s.StartDaemon(ctx))(t)
	s.Worker("held").Kubelet.Hang()
	awaitRefusal(ctx, t, s, "held", "Hold")
	fenced.Kubelet.Hang()
	done := awaitRun(ctx, t, s, fenced.Name, result(wire.ResultDone))
	requireBack(ctx, t, s, fenced)

	r = awaitReport(ctx, t, s, func(r wire.PeriodReport) bool { return r.Fenced.ByResult[wire.ResultDone] == 1 })
	require.Len(t, r.Fenced.Runs, 1)
	run := r.Fenced.Runs[0]
	assert.Equal(t, []string{done.ID, fenced.Name, "BMC", "fenced"}, []string{run.ID, run.Node, run.Proof, run.By})
	assert.WithinDuration(t, done.Started, run.Started, time.Minute)
	assert.Equal(t, seen, r.Would, "a restart forgets none of them")
	took := map[string]wire.PhaseTimes{}
	for _, p := range r.Phases {
		took[p.Phase] = p
	}
	for _, phase := range []string{"Detection", "PowerOff", "Proof", "DeleteNode", "PowerOn", "AwaitNode", "RestoreNode", "Run"} {
		assert.Equal(t, 1, took[phase].Count, phase)
	}
	assert.GreaterOrEqual(t, took["Detection"].MaxSeconds, 2.0, "the timeout of the check")
	reasons := map[string]wire.RefusedReason{}
	for _, in := range r.Refused {
		reasons[in.Reason] = in
	}
	assert.Equal(t, 1, reasons["Hold"].Now)
	assert.Equal(t, 1, reasons["Hold"].Targets)
	assert.Equal(t, 2, reasons["ShortCircuit"].Targets)
	require.Len(t, r.Limits, 1)
	assert.Equal(t, 1, r.Limits[0].Closed)
	assert.Positive(t, r.Limits[0].Near)
	assert.False(t, r.Limits[0].Lasts)
	var modes []string
	for _, m := range r.Modes {
		modes = append(modes, m.Mode)
	}
	assert.Equal(t, []string{"observe", "observe,armed"}, modes)
	assert.Equal(t, "the log begins then", r.Evidence.Gaps[0].What)
	assert.Contains(t, r.Summary[0], "of a period of 1 day", "the log is minutes old")

	text := fencectl(ctx, t, s, 0, "report", "--since", "1d")
	for _, want := range []string{"WOULD HAVE BEEN FENCED", "of these ended without fenced", "1 run began: 1 Done.", done.ID} {
		assert.Contains(t, text.Stdout, want)
	}
	assert.Contains(t, fencectl(ctx, t, s, 1, "--cluster", "nowhere", "report").Stderr, "NoSuchCluster")
	html := fencectl(ctx, t, s, 0, "report", "--since", "1d", "-o", "html").Stdout
	assert.Contains(t, html, "<h2>Summary</h2>")
	assert.NotContains(t, html, "<script")
	if dir := os.Getenv("FENCED_KEEP_REPORT"); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "report.html"), []byte(html), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "report.txt"), []byte(text.Stdout), 0o644))
	}

	types := map[string]int{}
	for l, err := range api.New(s.Socket()).Audit(ctx, audit.Query{Run: done.ID}) {
		require.NoError(t, err)
		require.Nil(t, l.Break)
		assert.Equal(t, done.ID, l.Entry.Run)
		types[l.Entry.Type]++
	}
	assert.Equal(t, 1, types["Started"])
	assert.GreaterOrEqual(t, types["Step"], 5)
	assert.Positive(t, types["Action"])
}

// awaitReport asks for the report of a day until it is as wanted.
func awaitReport(ctx context.Context, t *testing.T, s *scene.Scene, ok func(wire.PeriodReport) bool) (r wire.PeriodReport) {
	t.Helper()
	require.Eventually(t, func() bool {
		r = wire.PeriodReport{}
		out, err := s.Fencectl(ctx, "report", "--since", "1d", "-o", "json")
		return err == nil && out.Exit == 0 && json.Unmarshal([]byte(out.Stdout), &r) == nil && ok(r)
	}, patience, time.Second, "the last report: %+v", &r)
	return r
}
