package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/pace"
	"github.com/fenced/fenced/test/rig"
)

// TestMain lets this binary be the programs that Measure starts, and those of MeasureScale.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{burnWord, apiWord, bmcsWord}, os.Args[1]) {
		if err := run(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	metalTimeout, cloudTimeout, manyTimeout, patience = 40*time.Second, 40500*time.Millisecond, time.Minute, 5*time.Minute
	os.Exit(m.Run())
}

// The same for where the time goes.
func TestWhere(t *testing.T) {
	dice.OnlyInSoak(t)
	needStrace(t)
	r := must.Do(Measure(t.Context(), Options{
		Nodes: 100, Rate: 20, Window: time.Second, Samples: 1, Together: 10, Rounds: 1, Where: true, Settle: time.Second, Progress: t.Output(),
	}))(t)
	w := r.WhereTo
	require.NotNil(t, w)
	assert.Len(t, w.Deleted, 10)
	assert.Len(t, w.stages, 5)
	for _, s := range w.stages {
		assert.Len(t, s.at, 10, s.name)
	}
	for what, s := range map[string]*spent{
		"state": w.syncs["state.db"], "audit log": w.syncs["audit.jsonl"], "reads": w.requests["get machines"], "deletions": w.requests["delete machines"],
	} {
		require.NotNil(t, s, what)
		assert.Positive(t, s.took, what)
	}
	assert.Equal(t, 10, w.requests["delete machines"].times)
}

func needStrace(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("strace is not installed: make deps")
	}
}

// Lines of strace, also of a call that another thread interrupts, and of Go's garbage collector are read as they come.
func TestReadTraces(t *testing.T) {
	from := time.Unix(1790000000, 0)
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "text")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	w := Where{syncs: map[string]*spent{}}
	require.NoError(t, w.readTrace(write(`7 1789999999.900000 fdatasync(9</run/state.db>) = 0 <0.000100>
7 1790000000.100000 fdatasync(9</run/state.db>) = 0 <0.001000>
7 1790000000.200000 fdatasync(9</run/state.db> <unfinished ...>
8 1790000000.210000 fsync(11</run/audit.jsonl>) = 0 <0.002500>
7 1790000000.230000 <... fdatasync resumed>) = 0 <0.030000>
8 1790000000.900000 +++ exited with 0 +++
8 1790000001.100000 fsync(11</run/audit.jsonl>) = 0 <0.002500>
`), from, from.Add(time.Second)))
	assert.Equal(t, map[string]*spent{"state.db": {2, 31 * time.Millisecond}, "audit.jsonl": {1, 2500 * time.Microsecond}}, w.syncs)
	require.NoError(t, w.readCollections(write(`{"msg":"started"}
gc 1 @0.010s 5%: 0.010+0.20+0.002 ms clock, 0.020+0.10/0.30/0.50+0.005 ms cpu, 4->4->2 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P
gc 2 @1.500s 3%: 0.010+20+0.002 ms clock, 1.000+2.00/3.00/50.0+0.500 ms cpu, 40->44->22 MB, 44 MB goal, 0 MB stacks, 0 MB globals, 2 P
`), time.Second, 2*time.Second))
	assert.Equal(t, spent{1, 6500 * time.Microsecond}, w.gcs)
}

// A small fleet shows that the measurement measures, which make bench shows on a large one; whether a figure
// is good is for `make bench` on an idle machine. Measure itself fails when a Node or a
// Machine that is no target is touched, or the BMC of a healthy host is asked.
func TestMeasure(t *testing.T) {
	dice.OnlyInSoak(t)
	r := must.Do(Measure(t.Context(), Options{
		Nodes: 200, Rate: 20, Window: 3 * time.Second, Samples: 3, Together: 10, Rounds: 1, Busy: true, Settle: time.Second, Progress: t.Output(),
	}))(t)
	for what, samples := range map[string][]time.Duration{"metal": r.Metal, "cloud": r.Cloud} {
		require.Len(t, samples, 3, what)
		for _, d := range samples {
			assert.Positive(t, d, "%s: nothing is done before the timeout is over", what)
			assert.Less(t, d, patience, what)
		}
	}
	for load, by := range r.Many {
		for who, attempts := range by {
			require.Len(t, attempts, 1, "%d of %d", load, who)
			require.Len(t, attempts[0].Deleted, 10, "%d of %d", load, who)
			for _, d := range attempts[0].Deleted {
				assert.Positive(t, d, "%d of %d: nothing is deleted before the timeout is over", load, who)
			}
			for i, used := range attempts[0].UntilLast {
				assert.Less(t, used, measureTime, sharers[i])
			}
		}
	}
	assert.Positive(t, r.Start)
	for what, u := range map[string]Usage{"fenced": r.Fenced, "controller": r.Controller} {
		assert.Positive(t, u.CPU, what)
		assert.Less(t, u.CPU, 64.0, what)
		assert.Greater(t, u.RSS, int64(4<<20), what)
		assert.GreaterOrEqual(t, u.Peak, u.RSS, what)
		assert.Positive(t, u.Own, what)
		assert.Less(t, u.Own, u.RSS, what)
		assert.Positive(t, u.Updates, what)
	}
	var out bytes.Buffer
	require.NoError(t, r.Print(&out))
	assert.Contains(t, out.String(), "first byte at the BMC")
	assert.Contains(t, out.String(), "OpenShift's controller")
}

func TestMeasureRefusesTooSmall(t *testing.T) {
	for name, o := range map[string]Options{
		"no sample":     {Nodes: 100, Together: 1, Rounds: 1, Rate: 1, Window: time.Second},
		"no update":     {Nodes: 100, Samples: 1, Together: 1, Rounds: 1, Window: time.Second},
		"no window":     {Nodes: 100, Samples: 1, Together: 1, Rounds: 1, Rate: 1},
		"none together": {Nodes: 100, Samples: 1, Rounds: 1, Rate: 1, Window: time.Second},
		"no round":      {Nodes: 100, Samples: 1, Together: 1, Rate: 1, Window: time.Second},
		"only targets":  {Nodes: 2, Samples: 1, Together: 1, Rounds: 1, Rate: 1, Window: time.Second},
	} {
		_, err := Measure(t.Context(), o)
		assert.ErrorContains(t, err, "are needed", name)
	}
}

func TestRunRefusesArguments(t *testing.T) {
	assert.ErrorContains(t, run(t.Context(), []string{"-nodes", "10", "what"}), `"what"`)
}

func TestParseCPU(t *testing.T) {
	d := must.Do(parseCPU("42 (a) b (c)) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 7 7 20 0 8 0 1 1 1"))(t)
	assert.Equal(t, 2*time.Second, d, "user and kernel time, not that of children")
	_, err := parseCPU("42 (fenced) S 1")
	assert.Error(t, err)
	_, err = parseCPU("42 (fenced) S 1 42 42 0 -1 4194560 1 0 0 0 x 50 7")
	assert.Error(t, err)
}

func TestOwnUsage(t *testing.T) {
	p := must.Do(startProcess(t.TempDir(), "busy", "/bin/sh", "-c", "while :; do :; done"))(t)
	defer p.stop()
	var updates counter
	updates.Store(7)
	pace.Until(t, "CPU time of a busy loop, on a machine that others use, too", func() bool {
		u := must.Do(p.usage(t.Context(), time.Second, &updates))(t)
		assert.LessOrEqual(t, u.CPU, 1.5)
		assert.Zero(t, u.Updates, "only those within the window count")
		return u.CPU > 0
	})
	p.stop()
	_, err := p.cpuTime()
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// What is used between two instants is the difference of the last readings before them.
func TestSharesBetweenTwoInstants(t *testing.T) {
	began := time.Now()
	s := &shares{stop: func() {}}
	for i := range 5 {
		s.at = append(s.at, began.Add(time.Duration(i)*shareEvery))
		s.times = append(s.times, cpuShares{time.Duration(i), time.Duration(10 * i), time.Duration(100 * i)})
	}
	used := must.Do(s.measure(began.Add(shareEvery), began.Add(4*shareEvery-1)))(t)
	assert.Equal(t, cpuShares{2, 20, 200}, used)
	used = must.Do(s.measure(began.Add(-time.Hour), began.Add(time.Hour)))(t)
	assert.Equal(t, cpuShares{4, 40, 400}, used)
}

func TestSharesOfAProcessThatEnds(t *testing.T) {
	_, err := startShares(t.Context(), os.Getpid(), os.Getpid(), 1<<30).measure(time.Now(), time.Now())
	assert.ErrorContains(t, err, "read the CPU time of etcd")
}

func TestReplaced(t *testing.T) {
	before := map[string]string{"a": "1", "b": "2", "c": "3"}
	assert.NoError(t, replaced("Node", []string{"a", "b"}, before, map[string]string{"a": "1", "b": "2"}), "c was a target")
	assert.ErrorContains(t, replaced("Node", []string{"a", "b"}, before, map[string]string{"a": "1"}), "b first")
	assert.ErrorContains(t, replaced("Node", []string{"a"}, before, map[string]string{"a": "9"}), "a first", "another object of the same name")
}

// An update is what it is called: the measurement rests on that.
func TestUpdates(t *testing.T) {
	n := newNode("n", newUUID(), 7)
	now := time.Now().Truncate(time.Second)
	before := n.DeepCopy()
	heartbeat(n, now)
	for i, c := range n.Status.Conditions {
		assert.True(t, c.LastHeartbeatTime.Time.Equal(now))
		c.LastHeartbeatTime = before.Status.Conditions[i].LastHeartbeatTime
		assert.Equal(t, before.Status.Conditions[i], c, "a heartbeat says nothing else")
	}
	for range 2 {
		was := n.DeepCopy()
		turn(n, now)
		assert.NotEqual(t, was.Status.Conditions[0].Status, n.Status.Conditions[0].Status)
		assert.NotEqual(t, was.Status.Conditions[0].Message, n.Status.Conditions[0].Message)
		assert.Equal(t, corev1.ConditionTrue, rig.ReadyStatus(n))
	}
	fail(n, now)
	assert.Equal(t, corev1.ConditionUnknown, rig.ReadyStatus(n))
}

func TestDecoyAddresses(t *testing.T) {
	d := &decoy{port: 1}
	seen := map[string]bool{}
	for i := range 70_000 {
		a := d.address(i)
		require.False(t, seen[a], a)
		require.True(t, strings.HasPrefix(a, "ipmi://127."), a)
		seen[a] = true
	}
}

// What asks any healthy host's BMC is counted, and makes Measure fail.
func TestDecoyCounts(t *testing.T) {
	d := must.Do(startDecoy(t.Context()))(t)
	defer d.stop()
	for _, number := range []int{0, 4999} {
		conn := must.Do(net.Dial("udp", strings.TrimPrefix(d.address(number), "ipmi://")))(t)
		must.Do(conn.Write([]byte("are you on?")))(t)
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool { return d.asked.Load() == 2 }, time.Minute, 10*time.Millisecond)
}

const benchOutput = `goos: linux
goarch: amd64
pkg: github.com/fenced/fenced/internal/policy
cpu: some
BenchmarkLedger/1000-2  	  100	   12345 ns/op	  2048 B/op	  12 allocs/op
BenchmarkLedger/5000-2  	  100	   999.5 ns/op	  3.000 things/op	  5242880 B/op	  0 allocs/op
--- FAIL: BenchmarkBroken
PASS
ok  	github.com/fenced/fenced/internal/policy	1.2s
`

func TestTable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, table(strings.NewReader(benchOutput), &out))
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	assert.Equal(t, []string{
		"",
		"github.com/fenced/fenced/internal/policy times run time/op memory/op allocations/op other",
		"Ledger/1000-2 100 12.35 us 2 KiB 12",
		"Ledger/5000-2 100 999.5 ns 5 MiB 0 3.000 things/op",
		"--- FAIL: BenchmarkBroken",
	}, got)
	assert.Error(t, table(strings.NewReader("PASS\n"), &out), "no benchmark ran")
}

func TestPrint(t *testing.T) {
	r := Result{Options: Options{Nodes: 5000, Rate: 100, Window: 30 * time.Second}, Start: time.Second}
	r.Metal = []time.Duration{25 * time.Millisecond}
	r.Cloud = []time.Duration{100 * time.Millisecond}
	r.Many[quiet] = [][]attempt{
		{{Deleted: []time.Duration{80 * time.Millisecond, 200 * time.Millisecond}, UntilLast: cpuShares{0, 7 * time.Millisecond, 0}}},
		{{Deleted: []time.Duration{160 * time.Millisecond, 400 * time.Millisecond}}},
	}
	r.Fenced = Usage{CPU: 0.01, RSS: 40 << 20, Own: 12 << 20, Peak: 50 << 20, Updates: 99.8}
	r.Controller = Usage{CPU: 0.25, RSS: 200 << 20, Own: 180 << 20, Peak: 200 << 20, Updates: 99.9}
	var out bytes.Buffer
	require.NoError(t, r.Print(&out))
	for _, want := range []string{"25.0 ms", "0.50\n", "2.00\n", "25.00 %", "0.20\n", "40.0 MiB", "12.0 MiB", "25.0", fmt.Sprintf("%s\n", machine())} {
		assert.Contains(t, out.String(), want)
	}
	for _, want := range []string{"first 80.0 ms (80.0 ms) 100.0 ms 0.80 160.0 ms (160.0 ms) 0.50", "last 200.0 ms (200.0 ms) 800.0 ms 0.25 400.0 ms (400.0 ms) 0.50",
		"CPU time of the API server, from the timeout until the last 7.0 ms (7.0 ms)"} {
		assert.Contains(t, strings.Join(strings.Fields(out.String()), " "), want)
	}
}
