package audit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

var origin = Origin{Version: "1.2.3", Host: "bastion", Store: "STOREID"}

func opened(t *testing.T, path string) *Log {
	t.Helper()
	l := must.Do(Open(path, Options{Origin: origin}))(t)
	t.Cleanup(func() { _ = l.Close() }) // a second Close does nothing
	return l
}

func newPath(t *testing.T) string { return filepath.Join(t.TempDir(), "audit.jsonl") }

func appendN(t *testing.T, l *Log, n int) (last Head) {
	t.Helper()
	for i := range n {
		h := must.Do(l.Append(t.Context(), Entry{Type: "Action", Node: fmt.Sprintf("n-%d", i), Action: "SendOff"}))(t)
		last = h
	}
	return last
}

// written appends n entries to the log at path, and closes it.
func written(t *testing.T, path string, n int) (last Head) {
	t.Helper()
	l := opened(t, path)
	last = appendN(t, l, n)
	require.NoError(t, l.Close())
	return last
}

func lines(t *testing.T, path string) [][]byte {
	t.Helper()
	data := must.Do(os.ReadFile(path))(t)
	return bytes.SplitAfter(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

// types are those of all entries at path, which must be whole.
func types(t *testing.T, path string) (all []string) {
	t.Helper()
	must.Do(Walk(path, func(l Line) error { all = append(all, l.Entry.Type); return nil }))(t)
	return all
}

func TestChainGoesOnOverStarts(t *testing.T) {
	path := newPath(t)
	l := opened(t, path)
	first := appendN(t, l, 3)
	assert.Equal(t, first, l.Head())
	require.NoError(t, l.Close())
	l = opened(t, path)
	last := appendN(t, l, 2)
	assert.EqualValues(t, 7, last.Seq)

	s := must.Do(Verify(path, first, last))(t)
	assert.Equal(t, last, s.Head)
	assert.Zero(t, s.Torn)
	assert.Equal(t, []string{Opened, "Action", "Action", "Action", Opened, "Action", "Action"}, types(t, path))
	var e Entry
	must.Do(Walk(path, func(l Line) error {
		if l.Entry.Seq == 5 {
			e = l.Entry
		}
		return nil
	}))(t)
	assert.Equal(t, origin, *e.Origin)
}

// Concurrent appenders share an fsync, and each is told of its own place.
func TestGroupCommit(t *testing.T) {
	path := newPath(t)
	l := opened(t, path)
	var wg sync.WaitGroup
	var mu sync.Mutex
	heads := map[Head]bool{}
	for range 200 {
		wg.Go(func() {
			h, err := l.Append(t.Context(), Entry{Type: "Action"})
			assert.NoError(t, err)
			mu.Lock()
			heads[h] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	var all []Head
	for h := range heads {
		all = append(all, h)
	}
	require.Len(t, all, 200, "each has a place of its own")
	must.Do(Verify(path, all...))(t)
}

func TestAddKeepsItsTurn(t *testing.T) {
	path := newPath(t)
	l := opened(t, path)
	for range 50 {
		l.Add(Entry{Type: "Step"})
	}
	h := must.Do(l.Append(t.Context(), Entry{Type: "Action"}))(t)
	assert.EqualValues(t, 52, h.Seq)
	assert.Zero(t, l.Failures())
}

func TestSecondWriterIsRefused(t *testing.T) {
	path := newPath(t)
	opened(t, path)
	_, err := Open(path, Options{})
	require.ErrorIs(t, err, ErrLocked)
}

// A write that fails acknowledges nothing and leaves nothing; when it works again
// the chain is whole and tells what it lacks.
func TestFailedWritesAreTakenBack(t *testing.T) {
	path := newPath(t)
	var told []error
	began := time.Now()
	l := must.Do(Open(path, Options{Origin: origin, OnError: func(err error) { told = append(told, err) }}))(t)
	before := appendN(t, l, 1)
	good := l.file
	broken, err := os.Open(path) // may not be written
	require.NoError(t, err)
	l.swap(broken)
	for range 2 {
		_, err = l.Append(t.Context(), Entry{Type: "Action", Node: "never"})
		require.Error(t, err)
	}
	assert.Equal(t, before, l.Head())
	assert.EqualValues(t, 2, l.Failures())
	since, trouble := l.Trouble()
	assert.WithinRange(t, since, began, time.Now())
	require.ErrorContains(t, trouble, "audit log")
	l.swap(good)
	l.Retry()
	require.Eventually(t, func() bool { _, trouble := l.Trouble(); return trouble == nil }, time.Minute, time.Millisecond, "no event is needed")
	appendN(t, l, 1)
	require.NoError(t, l.Close())
	require.NoError(t, broken.Close())
	require.Len(t, told, 2, "once that it fails, once that it works")
	require.Error(t, told[0])
	require.NoError(t, told[1])

	must.Do(Verify(path, before))(t)
	assert.Equal(t, []string{Opened, "Action", Lost, "Action"}, types(t, path))
	assert.Contains(t, string(lines(t, path)[2]), "2 entries could not be written")
}

// swap puts another file under the writer, which must be idle.
func (l *Log) swap(f *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file = f
}

func TestWaitEnds(t *testing.T) {
	l := opened(t, newPath(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 { // both may be ready
		if _, err := l.Append(ctx, Entry{Type: "Action"}); err != nil {
			require.ErrorIs(t, err, context.Canceled)
			return
		}
	}
	t.Fatal("a context that has ended was never noticed")
}

func TestClosedLogTakesNothing(t *testing.T) {
	l := opened(t, newPath(t))
	require.NoError(t, l.Close())
	_, err := l.Append(t.Context(), Entry{Type: "Action"})
	require.ErrorIs(t, err, ErrClosed)
	l.Add(Entry{Type: "Step"})
	assert.EqualValues(t, 2, l.Failures())
}

// A large file is put aside, and the chain goes on.
func TestLargeFileIsPutAside(t *testing.T) {
	path := newPath(t)
	l := must.Do(Open(path, Options{Origin: origin, MaxFile: 2000}))(t)
	last := appendN(t, l, 40)
	require.NoError(t, l.Close())
	files := Files(path)
	require.Greater(t, len(files), 3)
	must.Do(Verify(path, last))(t)

	// Reopened after a crash between the two names of one file.
	require.NoError(t, os.Link(path, path+".000000000999"))
	l = opened(t, path)
	last = appendN(t, l, 1)
	must.Do(Verify(path, last))(t)

	// The oldest was taken away: its end must be vouched for.
	gone := must.Do(walkFile(files[0], func(Line) error { return nil }))(t)
	require.NoError(t, os.Remove(files[0]))
	_, err := Verify(path, last)
	require.ErrorContains(t, err, "removed on purpose")
	must.Do(Verify(path, last, gone.Head))(t)

	// One in the middle was taken away: nothing vouches for that.
	require.NoError(t, os.Remove(files[2]))
	_, err = Verify(path, last, gone.Head)
	require.ErrorContains(t, err, "does not end there")
}

func TestEntriesAreBoundedAndPrintable(t *testing.T) {
	path := newPath(t)
	l := opened(t, path)
	gates := make([]Gate, 500)
	for i := range gates {
		gates[i] = Gate{Name: strings.Repeat("g", 5000), Value: "\x1b]0;owned\a\xff<>&\""}
	}
	long := strings.Repeat("\u202e\x00", 4000)
	must.Do(l.Append(t.Context(), Entry{Type: "Started", Machine: long, Message: long, Why: long, Inputs: long, Gates: gates}))(t)
	line := lines(t, path)[1]
	assert.Less(t, len(line), maxLine)
	assert.NotContains(t, string(line), "\x1b")
	assert.NotContains(t, string(line), "\u202e")
	must.Do(Verify(path))(t)
}

func TestWriteThatHangsIsNotWaitedFor(t *testing.T) {
	l := &Log{wake: make(chan struct{}, 1), began: time.Now().Add(-2 * hangTime)} // nobody writes
	_, err := l.Append(t.Context(), Entry{Type: "Action"})
	require.ErrorIs(t, err, ErrHangs)
	since, err := l.Trouble()
	require.ErrorIs(t, err, ErrHangs)
	assert.Equal(t, l.began, since)
	l.Add(Entry{Type: "Step"}) // it may still come to be written
	assert.EqualValues(t, 1, l.Failures())
}

func TestFullQueueRefuses(t *testing.T) {
	l := &Log{wake: make(chan struct{}, 1)} // nobody writes
	for range maxPending {
		l.Add(Entry{Type: "Step"})
	}
	assert.Zero(t, l.Failures())
	_, err := l.Append(t.Context(), Entry{Type: "Action"})
	require.True(t, errors.Is(err, ErrFull))
	assert.EqualValues(t, 1, l.Failures())
}

const writerEnv = "FENCED_TEST_AUDIT_WRITER"

// TestMain is also the writer that TestKilledWriterLosesNothing kills: it prints
// the place of each entry once that is acknowledged.
func TestMain(m *testing.M) {
	hangTime = time.Minute
	path := os.Getenv(writerEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	l, err := Open(path, Options{Origin: origin, MaxFile: 4000})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	for range 8 {
		go func() {
			for {
				h, err := l.Append(context.Background(), Entry{Type: "Action", Message: strings.Repeat("x", 300)})
				if err != nil {
					fmt.Println("error:", err)
					os.Exit(1)
				}
				_, _ = os.Stdout.WriteString(h.String() + "\n") // one write: lines do not mix
			}
		}()
	}
	for {
		if _, err := l.Export(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		time.Sleep(time.Millisecond)
	}
}

// Every entry that was acknowledged is there after any number of kill -9.
func TestKilledWriterLosesNothing(t *testing.T) {
	path := newPath(t)
	var heads []Head
	for i := range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), writerEnv+"="+path)
		out := must.Do(cmd.StdoutPipe())(t)
		require.NoError(t, cmd.Start())
		scan := bufio.NewScanner(out)
		for n := 0; scan.Scan(); n++ {
			if !strings.Contains(scan.Text(), ":") {
				break // cut by the kill
			}
			require.NotContains(t, scan.Text(), "error")
			h := must.Do(ParseHead(scan.Text()))(t)
			heads = append(heads, h)
			if n == 20+7*i {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait() // it was killed
		cancel()
	}
	require.Greater(t, len(heads), 12*20)
	l := opened(t, path)
	require.NoError(t, l.Close())
	must.Do(Verify(path, heads...))(t)
	files := Files(path)
	require.Greater(t, len(files), 2, "files were put aside, too")
}
