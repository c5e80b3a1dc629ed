package e2e

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/dice"
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
		d, err := s.Cluster.NodeDeletions(w.Name)
		require.NoError(t, err)
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
	programs, err := builds()
	require.NoError(t, err)
	for program, want := range map[string]bool{programs.Fenced: false, programs.Failpoints: true} {
		code, err := os.ReadFile(program)
		require.NoError(t, err)
		assert.Equal(t, want, bytes.Contains(code, []byte("FENCED_FAILPOINTS")), filepath.Base(program))
	}
}
