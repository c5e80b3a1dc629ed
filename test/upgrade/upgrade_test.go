// Package upgrade_test takes up what the released version before this one left on the disk:
// testdata holds a state file and an audit log as a kill -9 left them in mid-run.
// testdata/README.md says which commit wrote them, and how.
package upgrade_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// killed is when the old daemon was killed.
var killed = at("00:15:51")

// at is a time of the day on which the story plays, which is the first of virtual time.
func at(clock string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, "2000-01-01T"+clock+"Z")
	if err != nil {
		panic(err) // a mistake in a literal of this package
	}
	return t
}

// fixtures copies the old files into a directory of this test.
func fixtures(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{auditFile, headFile} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	packed, err := os.ReadFile(filepath.Join("testdata", stateFile+".gz"))
	require.NoError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(packed))
	require.NoError(t, err)
	data, err := io.ReadAll(z)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, stateFile), data, 0o600))
	return dir
}

// The present version takes up every open run of the version before, and finishes it. It
// keeps to what people and the version before stopped.
func TestOpenRunsAreFinished(t *testing.T) {
	for name, on := range map[string]bool{"the hosts are as they were left": false, "hosts were switched on meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			dir := fixtures(t)
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(killed.Add(20 * time.Second)))
				w := newWorld()
				asLeft(t, w, dir, on)
				d := start(t, w, dir)
				checkStops(t, w, d)
				time.Sleep(10 * time.Minute)
				w.prod.Do(func(s *fake.State) { // its power supply is new
					h := s.Host(confirmed)
					h.BMC.Fails = nil
					h.Power(true, "by hand")
				})
				time.Sleep(20 * time.Minute)
				checkEnds(t, w, d)
				checkRefusals(t, w, d)
				d.stop()
			})
			checkChain(t, dir)
		})
	}
}

// checkChain checks the audit log with the product's own check: all that the old daemon
// wrote is there, byte by byte, and what the new one wrote follows it.
func checkChain(t *testing.T, dir string) {
	head, err := audit.ParseHead(oldHead)
	require.NoError(t, err)
	span, err := audit.Verify(filepath.Join(dir, auditFile), head)
	require.NoError(t, err)
	assert.Greater(t, span.Head.Seq, head.Seq+20)
	old, err := os.ReadFile(filepath.Join("testdata", auditFile))
	require.NoError(t, err)
	both, err := os.ReadFile(filepath.Join(dir, auditFile))
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(both, old), "the old entries stand as they were written")
	isolations := map[string]int{}
	_, err = audit.Walk(filepath.Join(dir, auditFile), func(l audit.Line) error {
		if l.Head.Seq == head.Seq+1 {
			assert.Equal(t, audit.Opened, l.Entry.Type)
			assert.Equal(t, storeID, l.Entry.Origin.Store, "the same store as before")
		}
		if l.Head.Seq > head.Seq && l.Entry.Action == string(remediate.IsolateNode) {
			isolations[l.Entry.Node]++
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]int{deleting: 1, cutting: 1, locked: 1}, isolations)
}
