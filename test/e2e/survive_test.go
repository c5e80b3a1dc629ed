package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/scene"
)

// course is one way that runs take, while fenced dies at each of its points.
type course struct {
	name  string
	scene scene.Options
	// only are patterns of the points that this course is about; all if there are none.
	only []string
	// each is a course of several runs at once.
	each bool
	// passed are points which the course must have come by.
	passed []string
	// ci marks the one course that CI takes; make soak takes all.
	ci bool
	// play makes it happen, and requires the end of a run that nothing disturbed.
	play func(*trial) (end string)
}

// trial is a course being played.
type trial struct {
	*testing.T
	ctx context.Context
	s   *scene.Scene
	// fenced starts the one that dies.
	fenced func()
}

// Whatever a run comes to, a fenced that dies by SIGKILL before and after each of its
// saves, commands to BMCs and writes to the cluster ends where one ends that lives:
// at most one deletion of a Node, by the API server's own account, never while the BMC
// tells anybody that the host is on, and no host off without an open run. The courses that
// CI leaves out go through the same code as TestSimulation, which kills at any call.
func TestFencedSurvives(t *testing.T) {
	t.Parallel()
	m := &matrix{}
	t.Cleanup(func() { t.Log("\n" + m.table()) })
	for _, c := range slices.Concat(courses(), lockCourses(), refusedCourses()) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !c.ci {
				dice.OnlyInSoak(t)
			}
			for _, w := range c.scene.Workers {
				if w.Protocol == scene.IPMISim {
					needDebian(t, "ipmi_sim", "ipmitool")
				}
			}
			m.add(survive(t, c))
		})
	}
}

func survive(t *testing.T, c course) column {
	began := time.Now()
	// Each death voids what was proven, and a command is not repeated at once. The next session is not waited for.
	c.scene.Set = append([]string{"power.sessionTimeout=0s", "power.offReadSpacing=1s", "power.offDeadline=3m", "power.onDeadline=2m", "power.podsGoneTimeout=0s"}, c.scene.Set...)
	s := set(t, c.scene)
	ctx := within(t)
	markers, deaths := points(t, c.only...), func() int { return 0 }
	if c.each {
		forEachNode(t, markers)
	}
	start := func() { deaths = keepAlive(ctx, t, s, markers) }
	end := c.play(&trial{T: t, ctx: ctx, s: s, fenced: start})
	n, at := deaths(), died(t, markers)
	assert.Len(t, at, n, "a death for each point")
	assert.False(t, has(at, "before-command-on-unsaved"), "a command that no saved run asks for")
	assert.False(t, has(at, "before-command-off-unsaved"), "a command that no saved run asks for")
	for _, p := range c.passed {
		assert.True(t, has(at, p), "death at %s; there were %v", p, at)
	}
	deletions := 0
	for _, w := range s.Workers {
		d := must.Do(s.Cluster.NodeDeletions(w.Name))(t)
		deletions += len(d)
	}
	t.Logf("%d deaths in %s, %s", n, time.Since(began).Round(time.Second), end)
	return column{course: c.name, points: at, deaths: n, deletions: deletions, end: end}
}

func TestShippedBinaryHasNoFailpoints(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs, which -short leaves out")
	}
	programs := must.Do(builds())(t)
	for program, want := range map[string]bool{programs.Fenced: false, programs.Failpoints: true} {
		code := must.Do(os.ReadFile(program))(t)
		assert.Equal(t, want, bytes.Contains(code, []byte("FENCED_FAILPOINTS")), filepath.Base(program))
	}
}

// keepAlive runs the fenced with failpoints and starts it again whenever it has
// killed itself, as systemd would, until the test ends. The function says how
// often that was; it ends the last one first.
func keepAlive(ctx context.Context, t *testing.T, s *scene.Scene, markers string) func() int {
	t.Helper()
	programs := must.Do(builds())(t)
	start := func() (*scene.Daemon, error) {
		return s.Launch(programs.Failpoints, "FENCED_FAILPOINTS="+markers)
	}
	d, err := start()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan int, 1)
	go func() {
		died := 0
		defer func() { ended <- died }()
		for {
			select {
			case <-ctx.Done():
				select {
				case <-d.Done():
					died++ // it was the first to end itself
				default:
					d.Kill()
				}
				return
			case <-d.Done():
			}
			code, _ := d.Wait(context.WithoutCancel(ctx)) // it has ended
			if !assert.True(t, d.Killed(), "fenced ended with status %d instead of being killed\n%s", code, s.LogTail(5)) {
				return
			}
			died++
			if d, err = start(); !assert.NoError(t, err) {
				return
			}
		}
	}()
	count := -1
	stop := func() int {
		cancel()
		if count < 0 {
			count = <-ended
		}
		return count
	}
	t.Cleanup(func() { stop() })
	return stop
}

// points is a directory of markers; only points that match one of the patterns kill,
// all of them if there is none.
func points(t *testing.T, only ...string) string {
	t.Helper()
	dir := t.TempDir()
	if len(only) > 0 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "only"), []byte(strings.Join(only, "\n")), 0o600))
	}
	return dir
}

// forEachNode lets a coin decide at the points of each Node; the seed decides how it
// falls.
func forEachNode(t *testing.T, markers string) {
	t.Helper()
	dice.Say(t)
	require.NoError(t, os.WriteFile(filepath.Join(markers, "each"), fmt.Append(nil, dice.Seed()), 0o600))
}

// died lists the points at which fenced killed itself.
func died(t *testing.T, markers string) []string {
	t.Helper()
	entries := must.Do(os.ReadDir(markers))(t)
	var names []string
	for _, e := range entries {
		text := must.Do(os.ReadFile(filepath.Join(markers, e.Name())))(t)
		if len(text) == 0 && e.Name() != "each" {
			names = append(names, e.Name())
		}
	}
	return names
}

func has(names []string, prefix string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, prefix) })
}

// hang freezes a host that has been silent for longer than the minute in which fenced
// would wait, after each restart anew, whether its Lease moves.
func hang(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker) {
	t.Helper()
	w.Kubelet.Hang()
	renewed := time.Now().Add(-2 * time.Minute).UTC().Format(metav1.RFC3339Micro)
	must.Do(s.Cluster.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, w.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, renewed), metav1.PatchOptions{}))(t)
}

// insist repeats an order until a fenced that lives long enough has taken it.
func insist(ctx context.Context, t *testing.T, s *scene.Scene, args ...string) {
	t.Helper()
	var last scene.Result
	for ctx.Err() == nil {
		r, err := s.Fencectl(ctx, args...)
		if last = r; err == nil && r.Exit == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Failf(t, "the order was not taken", "fencectl %v: %+v", args, last)
}

// watchRecord checks until the test ends that a host which is off has a run that is
// not over, whenever fenced lives to tell; finished ends the watch. // I20
func watchRecord(t *testing.T, s *scene.Scene, w *scene.Worker) (finished func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done, looks := make(chan struct{}), new(atomic.Int64)
	client := api.New(s.Socket())
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			off := !w.BMC.Power()
			status, err := client.Status(ctx)
			if off && err == nil && !w.BMC.Power() {
				looks.Add(1)
				assert.True(t, slices.ContainsFunc(status.Value.Runs, func(r wire.RunStatus) bool { return r.Node == w.Name }),
					"%s is off without an open run", w.Name)
			}
			pause(ctx, 200*time.Millisecond)
		}
	}()
	finished = func() { cancel(); <-done }
	t.Cleanup(func() {
		finished()
		assert.Positive(t, looks.Load(), "nobody looked while %s was off", w.Name)
	})
	return finished
}

// matrix is what docs/results.md shows: the points, and the courses in which fenced
// died there.
type matrix struct {
	mu      sync.Mutex
	columns []column
}

// column is one course.
type column struct {
	course            string
	points            []string
	deaths, deletions int
	end               string
}

func (m *matrix) add(c column) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.columns = append(m.columns, c)
}

// table is the matrix in Markdown, the points in the order of their names.
func (m *matrix) table() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.SortFunc(m.columns, func(a, b column) int { return strings.Compare(a.course, b.course) })
	rows, head, rule := map[string]bool{}, []string{"killed at"}, []string{"---"}
	for _, c := range m.columns {
		head, rule = append(head, c.course), append(rule, "---")
		for _, p := range c.points {
			rows[pointOf(p)] = true
		}
	}
	lines := [][]string{head, rule}
	for _, point := range slices.Sorted(maps.Keys(rows)) {
		line := []string{point}
		for _, c := range m.columns {
			line = append(line, c.cell(point))
		}
		lines = append(lines, line)
	}
	for name, of := range map[string]func(column) string{
		"**deaths**":          func(c column) string { return fmt.Sprint(c.deaths) },
		"**Nodes deleted**":   func(c column) string { return fmt.Sprint(c.deletions) },
		"**end of each run**": func(c column) string { return c.end },
	} {
		line := []string{name}
		for _, c := range m.columns {
			line = append(line, of(c))
		}
		lines = append(lines, line)
	}
	slices.SortStableFunc(lines[2+len(rows):], func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	var text strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&text, "| %s |\n", strings.Join(line, " | "))
	}
	return text.String()
}

// pointOf is a point without whether it is before or after, and on which Node.
func pointOf(marker string) string {
	marker, _, _ = strings.Cut(marker, "@")
	_, point, _ := strings.Cut(marker, "-")
	return strings.ReplaceAll(point, "-", " ")
}

// cell says how often fenced died before and after a point.
func (c column) cell(point string) string {
	before, after := 0, 0
	for _, p := range c.points {
		switch {
		case pointOf(p) != point:
		case strings.HasPrefix(p, "before-"):
			before++
		default:
			after++
		}
	}
	if before+after == 0 {
		return ""
	}
	return fmt.Sprintf("%d+%d", before, after)
}
