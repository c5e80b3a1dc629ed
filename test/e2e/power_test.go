package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/scene"
)

// needAgents skips without the Debian peers that stand behind power levels.
func needAgents(t *testing.T, agents ...string) {
	t.Helper()
	needDebian(t, "ipmi_sim", "ipmitool")
	for _, a := range agents {
		if _, err := os.Stat(filepath.Join("/usr/sbin", a)); err != nil {
			needDebian(t, a) // says what to do
		}
	}
}

// enroll vouches for workers' devices, once the daemon has seen the cluster.
func enroll(ctx context.Context, t *testing.T, s *scene.Scene, names ...string) {
	t.Helper()
	requireGoodStatus(ctx, t, s)
	for _, name := range names {
		fencectl(ctx, t, s, 0, "bmc", "enroll", name, "--reason", "looked at the cabling", "--yes")
	}
}

// supply is what a host truly was, again and again: switched on and fed, or not.
type supply struct {
	mu   sync.Mutex
	seen []sample
}

type sample struct {
	at time.Time
	on bool
}

// watchSupply looks at a host itself until the test ends, and asks nobody.
func watchSupply(t *testing.T, w *scene.Worker) *supply {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &supply{}
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			p.mu.Lock()
			p.seen = append(p.seen, sample{time.Now(), w.On()})
			p.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return p
}

// requireOffAt checks that the host was off from 3 s before at, the spacing of the
// two readings of a proof, to a moment after it.
func (p *supply) requireOffAt(t *testing.T, at time.Time) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	looks := 0
	for _, s := range p.seen {
		if s.at.After(at.Add(-3*time.Second)) && s.at.Before(at.Add(time.Second)) {
			looks++
			require.False(t, s.on, "on at %s, the Node was deleted %s", s.at, at)
		}
	}
	require.Greater(t, looks, 10, "looks at the host around the deletion")
}

// requireOnAlways checks that the host was never off.
func (p *supply) requireOnAlways(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NotEmpty(t, p.seen)
	for _, s := range p.seen {
		require.True(t, s.on, "off at %s", s.at)
	}
}

// notesOf is all that the steps of a run noted.
func notesOf(r wire.RunRecord) string {
	var notes []string
	for _, s := range r.Steps {
		notes = append(notes, s.Note)
	}
	return strings.Join(notes, "\n")
}

// requireFenced waits until a run brought a host back, and checks it from the
// outside: one deletion, while the host was truly off.
func requireFenced(ctx context.Context, t *testing.T, s *scene.Scene, w *scene.Worker, p *supply) wire.RunRecord {
	t.Helper()
	r := awaitRun(ctx, t, s, w.Name, result(wire.ResultDone))
	assert.Empty(t, r.Reason, w.Name)
	requireBack(ctx, t, s, w)
	p.requireOffAt(t, requireOneDeletion(t, s, w).Received)
	for i := range w.Outlets {
		assert.True(t, w.Outlet(i).Power(), "outlet %d of %s is on again", i+1, w.Name)
	}
	return r
}
