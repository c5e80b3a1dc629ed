package audit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
	_ "github.com/fenced/fenced/test/oneproc" // a test in virtual time
)

// Whatever is done to the bytes of a log is found against its exported head.
func TestEveryChangeIsFound(t *testing.T) {
	path := newPath(t)
	written(t, path, 6)
	exported := written(t, path, 6) // a second beginning that could pass for the first
	original := must.Do(os.ReadFile(path))(t)
	must.Do(Verify(path, exported))(t)

	law.Check(t, func(t *rapid.T) {
		changed := change(t, original)
		if bytes.Equal(changed, original) {
			t.Skip("nothing was changed")
		}
		require.NoError(t, os.WriteFile(path, changed, 0o600))
		s, err := Verify(path, exported)
		if bytes.HasPrefix(changed, original) && s.Torn > 0 {
			return // something more is being written
		}
		require.Error(t, err)
	})
}

// change edits bytes, or removes, doubles, moves or cuts lines.
func change(t *rapid.T, original []byte) []byte {
	data := slices.Clone(original)
	parts := bytes.SplitAfter(data[:len(data)-1], []byte("\n"))
	parts[len(parts)-1] = append(slices.Clone(parts[len(parts)-1]), '\n')
	i := rapid.IntRange(0, len(parts)-1).Draw(t, "line")
	j := rapid.IntRange(0, len(parts)-1).Draw(t, "other")
	at := rapid.IntRange(0, len(data)-1).Draw(t, "byte")
	switch rapid.SampledFrom([]string{"edit", "insert", "delete", "cut", "remove", "removeUpTo", "swap", "double", "move"}).Draw(t, "how") {
	case "edit":
		data[at] = rapid.Byte().Draw(t, "to")
		return data
	case "insert":
		return slices.Insert(data, at, rapid.SliceOfN(rapid.Byte(), 1, 4).Draw(t, "more")...)
	case "delete":
		return slices.Delete(data, at, min(len(data), at+rapid.IntRange(1, 500).Draw(t, "count")))
	case "cut":
		return data[:at]
	case "remove":
		parts = slices.Delete(parts, min(i, j), max(i, j)+1)
	case "removeUpTo":
		parts = parts[i:]
	case "swap":
		parts[i], parts[j] = parts[j], parts[i]
	case "double":
		parts = slices.Insert(parts, j, parts[i])
	case "move":
		line := parts[i]
		parts = slices.Insert(slices.Delete(parts, i, i+1), min(j, len(parts)-1), line)
	}
	return bytes.Join(parts, nil)
}

// A chain that was made anew over other entries is whole, and is not the one that
// was exported.
func TestChainMadeAnewIsFound(t *testing.T) {
	path := newPath(t)
	exported := written(t, path, 5)
	forged := newPath(t)
	written(t, forged, 9)
	must.Do(Verify(forged))(t)
	_, err := Verify(forged, exported)
	require.ErrorContains(t, err, "the log was rebuilt")
}

func FuzzRead(f *testing.F) {
	path := filepath.Join(f.TempDir(), "audit.jsonl")
	l := must.Do(Open(path, Options{Origin: origin}))(f)
	require.NoError(f, l.Close())
	data := must.Do(os.ReadFile(path))(f)
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Add([]byte(beforePrev + beforeHash + beforeEntry + afterEntry + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var again []byte
		s, err := Read(bytes.NewReader(data), func(l Line) error {
			again = append(append(again, l.Raw...), '\n')
			require.Equal(t, l.Entry.Seq, l.Head.Seq)
			return nil
		})
		require.True(t, bytes.Equal(data[:s.Whole], again), "exactly the lines that are there")
		if err == nil {
			require.EqualValues(t, len(data), s.Whole+s.Torn)
		}
	})
}

// Nobody has to remember a head: the one beside the log finds a cut end, and vouches
// for no beginning.
func TestVerifyComparesTheRememberedHead(t *testing.T) {
	path := newPath(t)
	last := written(t, path, 4)
	s, err := Verify(path)
	require.NoError(t, err)
	require.Equal(t, last, s.Remembered)

	whole := lines(t, path)
	for keep := range len(whole) {
		require.NoError(t, os.WriteFile(path, bytes.Join(whole[:keep], nil), 0o600))
		_, err = Verify(path)
		require.ErrorContains(t, err, "its end is missing", keep)
	}
	require.NoError(t, os.Remove(path))
	next := opened(t, path)
	appendN(t, next, 1)
	_, err = Verify(path)
	require.ErrorContains(t, err, "it starts with entry 6")
	_, err = Verify(path, last)
	require.NoError(t, err, "an exported head does vouch for it")
	require.NoError(t, os.WriteFile(headFile(path), []byte("what"), 0o600))
	_, err = Verify(path, last)
	require.ErrorContains(t, err, "saved head")
}

// The end of a log is read without the rest, also with a line that is cut at either end.
func TestTail(t *testing.T) {
	path := newPath(t)
	var seqs []uint64
	collect := func(e Entry) { seqs = append(seqs, e.Seq) }
	require.NoError(t, Tail(path, 1000, collect), "there is no log yet")
	written(t, path, 50)
	require.NoError(t, Tail(path, 1<<20, collect))
	assert.Len(t, seqs, 51, "Opened and all others")

	file := must.Do(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0))(t)
	must.Do(file.WriteString(`{"prev":"torn`))(t)
	require.NoError(t, file.Close())
	seqs = nil
	require.NoError(t, Tail(path, 1000, collect))
	require.NotEmpty(t, seqs)
	assert.Less(t, len(seqs), 10)
	assert.Equal(t, uint64(51), seqs[len(seqs)-1])

	seqs = nil
	require.NoError(t, os.WriteFile(path, append(make([]byte, 2*maxLine), '\n'), 0o600))
	assert.Error(t, Tail(path, 4*maxLine, collect), "a line that is too long")
	assert.Empty(t, seqs)
}

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
	require.Greater(t, len(Files(path)), 3)
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
		files := Files(path)
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

// A file whose first entry a clock that was ahead has dated does not end the search: what it wrote when it was right again follows, in this
// file or in the next one. Whether that time is still to come does not matter.
func TestSelectReadsOnBehindAClockThatWasAhead(t *testing.T) {
	now := time.Now().UTC()
	until := now.AddDate(0, 0, -9)
	for name, tc := range map[string]struct {
		files [][]time.Time
		want  []uint64
	}{
		"to come":              {[][]time.Time{{now.AddDate(1, 0, 0), until.Add(-time.Minute)}}, []uint64{2}},
		"passed":               {[][]time.Time{{now.AddDate(0, 0, -1), until.Add(-time.Minute)}, {now}}, []uint64{2}},
		"for a file":           {[][]time.Time{{now.AddDate(0, 0, -1)}, {until.Add(-time.Minute)}, {now}}, []uint64{2}},
		"for two files":        {[][]time.Time{{now.AddDate(0, 0, -2)}, {now.AddDate(0, 0, -1)}, {until.Add(-time.Minute)}}, []uint64{3}},
		"in the last file":     {[][]time.Time{{until.Add(-time.Hour)}, {now.AddDate(0, 0, -1), until.Add(-time.Minute)}}, []uint64{1, 3}},
		"passed, for the last": {[][]time.Time{{until.Add(-time.Hour)}, {now.AddDate(0, 0, -1)}}, []uint64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			seqs, breaks := selected(t, writtenAt(t, tc.files...), Query{Until: until})
			assert.Empty(t, breaks)
			assert.Equal(t, tc.want, seqs)
		})
	}
}

// A file is not passed over because a clock that was behind has dated the first entry of the next one.
func TestSelectPassesNoFileOverForAClockThatWasBehind(t *testing.T) {
	now := time.Now().UTC()
	ago := func(days int) time.Time { return now.AddDate(0, 0, -days) }
	path := writtenAt(t, []time.Time{ago(40), ago(30)}, []time.Time{ago(29), ago(9)}, []time.Time{ago(2000), ago(8)})
	seqs, breaks := selected(t, path, Query{Since: ago(10)})
	assert.Empty(t, breaks)
	assert.Equal(t, []uint64{4, 6}, seqs)
}

// writtenAt writes a log of files whose entries were written at these times.
func writtenAt(t *testing.T, files ...[]time.Time) (path string) {
	path, head := newPath(t), Head{}
	for i, times := range files {
		var list []Entry
		for _, at := range times {
			list = append(list, Entry{Type: Opened, At: at})
		}
		lines, heads, err := chain(head, list)
		require.NoError(t, err)
		head = heads[len(heads)-1]
		name := path
		if i < len(files)-1 {
			name = rotatedName(path, head.Seq)
		}
		require.NoError(t, os.WriteFile(name, lines, 0o600))
	}
	return path
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
			tc.harm(t, path, Files(path))
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
