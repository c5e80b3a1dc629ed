package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
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
