package audit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
	_ "github.com/fenced/fenced/test/oneproc" // a test in virtual time
)

// selected are the numbers of the entries that a query selects, and the breaks.
func selected(t *testing.T, path string, q Query) (seqs []uint64, breaks []Break) {
	t.Helper()
	require.NoError(t, Select(t.Context(), path, q, func(e Entry) error {
		seqs = append(seqs, e.Seq)
		return nil
	}, func(b Break) error {
		breaks = append(breaks, b)
		return nil
	}))
	return seqs, breaks
}

func upTo(first, last uint64) (list []uint64) {
	for n := first; n <= last; n++ {
		list = append(list, n)
	}
	return list
}

// manyFiles writes a log of several files, and returns its last head.
func manyFiles(t *testing.T, path string) Head {
	l := must.Do(Open(path, Options{Origin: origin, MaxFile: 1500}))(t)
	last := appendN(t, l, 30)
	require.NoError(t, l.Close())
	require.Greater(t, len(must.Do(Files(path))(t)), 3)
	return last
}

func TestSelectReadsAllFiles(t *testing.T) {
	path := newPath(t)
	last := manyFiles(t, path)
	seqs, breaks := selected(t, path, Query{})
	assert.Equal(t, upTo(1, last.Seq), seqs)
	assert.Empty(t, breaks)

	// A crash between the two names of one file.
	require.NoError(t, os.Link(path, rotatedName(path, last.Seq)))
	seqs, breaks = selected(t, path, Query{})
	assert.Equal(t, upTo(1, last.Seq), seqs)
	assert.Empty(t, breaks)
	require.NoError(t, os.WriteFile(path+".1.bak", []byte("a copy of somebody"), 0o600))
	seqs, _ = selected(t, path, Query{})
	assert.Len(t, seqs, int(last.Seq))
}

func TestSelectFilters(t *testing.T) {
	path := newPath(t)
	l := opened(t, path)
	for _, e := range []Entry{
		{Type: "Started", Cluster: "prod", Node: "n-1", Run: "r-1"},
		{Type: "Refused", Cluster: "prod", Machine: "ns/m-1"},
		{Type: "Started", Cluster: "lab", Node: "n-1", Run: "r-2"},
	} {
		must.Do(l.Append(t.Context(), e))(t)
	}
	var at []time.Time
	require.NoError(t, Select(t.Context(), path, Query{}, func(e Entry) error { at = append(at, e.At); return nil }, nil))
	for _, tc := range []struct {
		q    Query
		want []uint64
	}{
		{Query{Cluster: "prod"}, []uint64{2, 3}},
		{Query{Node: "n-1"}, []uint64{2, 4}},
		{Query{Node: "ns/m-1"}, []uint64{3}},
		{Query{Run: "r-2"}, []uint64{4}},
		{Query{Cluster: "lab", Run: "r-1"}, nil},
		{Query{Since: at[3].Add(1)}, nil},
		{Query{Until: at[0]}, nil},
		{Query{Since: at[0], Until: at[3].Add(1)}, []uint64{1, 2, 3, 4}},
	} {
		seqs, breaks := selected(t, path, tc.q)
		assert.Equal(t, tc.want, seqs, "%+v", tc.q)
		assert.Empty(t, breaks, "%+v", tc.q)
	}
}

// Files that ended before the time asked for are not read, nor are those that began after it; what follows them still follows.
func TestSelectPassesFilesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		l := must.Do(Open(path, Options{Origin: origin, MaxFile: 1500}))(t)
		for range 30 {
			must.Do(l.Append(t.Context(), Entry{Type: "Action", Message: strings.Repeat("x", 300)}))(t)
			time.Sleep(24 * time.Hour)
		}
		require.NoError(t, l.Close())
		files := must.Do(Files(path))(t)
		require.Greater(t, len(files), 5)
		for _, harmed := range []string{files[0], files[len(files)-1]} {
			require.NoError(t, os.WriteFile(harmed, []byte("damage that nobody asks for\n"), 0o600))
		}
		from, known := beginOf(files[2])
		require.True(t, known)
		to, known := beginOf(files[4])
		require.True(t, known)
		seqs, breaks := selected(t, path, Query{Since: from, Until: to})
		assert.Empty(t, breaks)
		require.NotEmpty(t, seqs)
		assert.Equal(t, upTo(seqs[0], seqs[len(seqs)-1]), seqs)
		_, breaks = selected(t, path, Query{})
		assert.Len(t, breaks, 2)
	})
}

// Whatever is wrong is said where it is, and what is behind it is read.
func TestSelectTellsBreaks(t *testing.T) {
	for name, tc := range map[string]struct {
		harm   func(t *testing.T, path string, files []string)
		what   string
		after  func(b Break, last uint64) bool
		behind bool // there is something to read behind it
	}{
		"oldest removed": {func(t *testing.T, _ string, files []string) { require.NoError(t, os.Remove(files[0])) },
			"what was before is not here", func(b Break, _ uint64) bool { return b.After == 0 && b.Next > 1 && !b.To.IsZero() }, true},
		"one in the middle removed": {func(t *testing.T, _ string, files []string) { require.NoError(t, os.Remove(files[1])) },
			"entries are missing", func(b Break, _ uint64) bool { return b.After > 1 && b.Next > b.After+1 && !b.From.After(b.To) }, true},
		"a line changed": {func(t *testing.T, _ string, files []string) {
			data := must.Do(os.ReadFile(files[1]))(t)
			require.NoError(t, os.WriteFile(files[1], bytes.Replace(data, []byte(`"Action"`), []byte(`"Acti0n"`), 1), 0o600))
		}, "the line was changed", func(b Break, _ uint64) bool { return b.Next == b.After+2 }, true},
		"no text at all": {func(t *testing.T, _ string, files []string) {
			require.NoError(t, os.WriteFile(files[1], append(bytes.Repeat([]byte{0}, 3*maxLine), "\n\n\x1b\n"...), 0o600))
		}, "a line has more than", func(b Break, _ uint64) bool { return b.Next > b.After+1 }, true},
		"end cut off": {func(t *testing.T, path string, _ []string) {
			whole := lines(t, path)
			require.NoError(t, os.WriteFile(path, bytes.Join(whole[:1], nil), 0o600))
		}, "the end is missing", func(b Break, last uint64) bool { return b.Next == 0 && b.After < last }, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			last := manyFiles(t, path).Seq
			tc.harm(t, path, must.Do(Files(path))(t))
			seqs, breaks := selected(t, path, Query{})
			require.Len(t, breaks, 1)
			assert.Contains(t, breaks[0].What, tc.what)
			assert.NotContains(t, breaks[0].What, "\x1b")
			assert.True(t, tc.after(breaks[0], last), "%+v", breaks[0])
			assert.Equal(t, tc.behind, seqs[len(seqs)-1] == last)
			assert.Less(t, len(seqs), int(last))
		})
	}
}

// A log that is written, and rotated all the time, is read without a break, and nobody waits for who reads it.
func TestSelectWhileItIsWritten(t *testing.T) {
	path := newPath(t)
	l := must.Do(Open(path, Options{Origin: origin, MaxFile: 2000}))(t)
	appendN(t, l, 10)
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; n < 500 && ctx.Err() == nil; n++ { // each read reads all of them
			_, err := l.Append(t.Context(), Entry{Type: "Action", Message: fmt.Sprint(n, strings.Repeat("x", 300))})
			assert.NoError(t, err)
		}
	})
	for range 50 {
		before := l.Head().Seq
		seqs, breaks := selected(t, path, Query{})
		require.Empty(t, breaks)
		require.GreaterOrEqual(t, uint64(len(seqs)), before)
		require.Equal(t, upTo(1, uint64(len(seqs))), seqs)
	}
	end()
	wg.Wait()
	require.NoError(t, l.Close())
}

func TestSelectEnds(t *testing.T) {
	path := newPath(t)
	require.ErrorIs(t, Select(t.Context(), path, Query{}, nil, nil), os.ErrNotExist)
	written(t, path, 5)
	ctx, end := context.WithCancel(t.Context())
	count := 0
	require.ErrorIs(t, Select(ctx, path, Query{}, func(Entry) error { count++; end(); return nil }, nil), context.Canceled)
	assert.Equal(t, 1, count)
}

// An entry of a start says until when the log was in use before; one of a further file is no start.
func TestStartsAreKnown(t *testing.T) {
	path := newPath(t)
	manyFiles(t, path)
	used := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.NoError(t, os.Chtimes(headFile(path), used, used))
	opened(t, path)
	var first, starts []Entry
	require.NoError(t, Select(t.Context(), path, Query{}, func(e Entry) error {
		if e.Type == Opened {
			first = append(first, e)
		}
		if e.Starts() {
			starts = append(starts, e)
		}
		return nil
	}, nil))
	require.Greater(t, len(first), 4)
	require.Len(t, starts, 2)
	_, known := starts[0].LastUse()
	assert.False(t, known)
	at, known := starts[1].LastUse()
	assert.True(t, known)
	assert.Equal(t, used, at)
}
