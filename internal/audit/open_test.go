package audit

import (
	"bytes"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

func TestUnfinishedLineIsCutOff(t *testing.T) {
	for _, cut := range []int{1, 9, 200, 300} { // the last is more than there is: it lacks only its end
		path := newPath(t)
		last := written(t, path, 3)
		whole := lines(t, path)
		unfinished := bytes.TrimSuffix(whole[3], []byte("\n"))
		cut = min(cut, len(unfinished))
		data := append(bytes.Join(whole, nil), '\n')
		require.NoError(t, os.WriteFile(path, append(data, unfinished[:cut]...), 0o600))
		s, err := Verify(path, last)
		require.NoError(t, err, "it may be being written")
		assert.EqualValues(t, cut, s.Torn)
		require.NoError(t, opened(t, path).Close())
		s = must.Do(Verify(path, last))(t)
		assert.Zero(t, s.Torn)
		assert.Equal(t, []string{Opened, "Action", "Action", "Action", Opened, Repaired}, types(t, path))
	}
}

// What is damaged otherwise is evidence, and is left as it is.
func TestDamagedLogIsRefused(t *testing.T) {
	damages := map[string]func([][]byte) [][]byte{
		"an entry was edited": func(l [][]byte) [][]byte { l[2] = bytes.Replace(l[2], []byte("n-1"), []byte("n-7"), 1); return l },
		"a line was removed":  func(l [][]byte) [][]byte { return append(l[:1:1], l[2:]...) },
		"lines were swapped":  func(l [][]byte) [][]byte { l[1], l[2] = l[2], l[1]; return l },
		"the beginning":       func(l [][]byte) [][]byte { return l[1:] },
		"the end":             func(l [][]byte) [][]byte { return l[:2] },
		"all but a line":      func(l [][]byte) [][]byte { return l[:1] },
		"another's file":      func([][]byte) [][]byte { return [][]byte{[]byte("root:x:0:0\n")} },
		"another's, no line":  func([][]byte) [][]byte { return [][]byte{[]byte("\x7fELF")} },
		"an empty line":       func(l [][]byte) [][]byte { return append(l, []byte("\n")) },
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			written(t, path, 3) // the head is remembered
			data := append(bytes.Join(damage(lines(t, path)), nil), '\n')
			if name == "another's, no line" {
				data = data[:4]
			}
			require.NoError(t, os.WriteFile(path, data, 0o600))
			_, err := Open(path, Options{})
			var broken *Broken
			require.ErrorAs(t, err, &broken)
			require.ErrorContains(t, err, "move it away")
			left := must.Do(os.ReadFile(path))(t)
			assert.Equal(t, data, left)
		})
	}
}

// A log that was moved away is followed by one that says what came before.
func TestNewLogFollowsTheOneThatWasMovedAway(t *testing.T) {
	path := newPath(t)
	last := written(t, path, 3)
	require.NoError(t, os.Rename(path, path+"-kept"))
	require.EqualValues(t, last.Seq+1, opened(t, path).Head().Seq)
	_, err := Verify(path)
	require.ErrorContains(t, err, "it starts with entry 5")
	must.Do(Verify(path, last))(t)
}

func TestRememberedHeadMustBeReadable(t *testing.T) {
	path := newPath(t)
	require.NoError(t, os.WriteFile(headFile(path), []byte("7:junk\n"), 0o600))
	_, err := Open(path, Options{})
	require.ErrorContains(t, err, headFile(path))
}

func TestParseHead(t *testing.T) {
	l := opened(t, newPath(t))
	h := must.Do(ParseHead(l.Head().String()))(t)
	assert.Equal(t, l.Head(), h)
	for _, text := range []string{"", "1", "x:" + h.String()[2:], "-1" + h.String()[1:], h.String() + "0", h.String()[:60], "1:" + string(bytes.ToUpper([]byte(h.String()[2:])))} {
		_, err := ParseHead(text)
		require.Error(t, err, text)
	}
}

// A pipe or a device in the place of the log, or of what is beside it, would be read
// for ever.
func TestOnlyARegularFileIsALog(t *testing.T) {
	good := newPath(t)
	require.NoError(t, opened(t, good).Close())
	pipe := newPath(t)
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	linked := newPath(t)
	require.NoError(t, os.Symlink("/dev/zero", linked))
	require.NoError(t, syscall.Mkfifo(headFile(good)+".pipe", 0o600))
	require.NoError(t, os.Rename(headFile(good)+".pipe", headFile(good)))
	for path, not := range map[string]string{pipe: pipe, linked: linked, good: headFile(good)} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, err := Verify(path)
			assert.ErrorContains(t, err, not+" is not a regular file")
			_, err = Open(path, Options{Origin: origin})
			assert.ErrorContains(t, err, not+" is not a regular file")
		}()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("%s is still being read", not)
		}
	}
}

// texts are the messages in the files that have the log's name, in order.
func texts(t *testing.T, path string) (list []string) {
	t.Helper()
	must.Do(Walk(path, func(l Line) error {
		list = append(list, l.Entry.Message)
		return nil
	}))(t)
	return list
}

// add appends an entry that says something.
func add(t *testing.T, l *Log, text string) Head {
	t.Helper()
	return must.Do(l.Append(t.Context(), Entry{Type: "Action", Message: text}))(t)
}

// A log that was moved or taken away goes on in a file that has its name: what is
// appended is where people look for it, and follows what was there. // I24
func TestLogThatLostItsName(t *testing.T) {
	path := newPath(t)
	l := opened(t, path)
	before := add(t, l, "before")
	require.NoError(t, os.Rename(path, path+".000000000002"))
	after := add(t, l, "after")
	assert.Greater(t, after.Seq, before.Seq)
	assert.Contains(t, texts(t, path), "before")
	assert.Contains(t, texts(t, path), "after")
	_, err := Verify(path, before, after)
	require.NoError(t, err, "both files are one log")
	info := must.Do(os.Stat(path))(t)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Remove(path+".000000000002"))
	last := add(t, l, "last")
	require.NoError(t, l.Close())
	assert.Contains(t, texts(t, path), "last")
	_, err = Verify(path, after, last)
	require.NoError(t, err, "and what was removed is missed: %s", texts(t, path)[0])
	assert.Contains(t, texts(t, path)[0], "is gone")
	require.NoError(t, opened(t, path).Close(), "the next start takes it up")
}

// A crash between the two names of a new file leaves both: the next file that is begun
// does not empty the one that has the log's name.
func TestLogWithALeftOverName(t *testing.T) {
	path := newPath(t)
	l := must.Do(Open(path, Options{Origin: origin, MaxFile: 2000}))(t)
	first := appendN(t, l, 1)
	require.NoError(t, os.Link(path, path+".new"))
	last := appendN(t, l, 40)
	require.NoError(t, l.Close())
	must.Do(Verify(path, first, last))(t)
}

// What stands there under the log's name, or has become of its file, is nothing that
// this process wrote: nothing is durable, and nothing of it is touched. // I24
func TestLogThatSomethingElseHasTouched(t *testing.T) {
	for name, touch := range map[string]func(path string) error{
		"another file has its name": func(path string) error {
			return os.Rename(path+".other", path)
		},
		"truncated": func(path string) error { return os.Truncate(path, 0) },
		"shortened": func(path string) error { return os.Truncate(path, 100) },
		"lengthened": func(path string) error {
			f := must.Do(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0))(t)
			must.Do(f.WriteString("x\n"))(t)
			return f.Close()
		},
		"a directory has its name": func(path string) error {
			require.NoError(t, os.Remove(path))
			return os.Mkdir(path, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			require.NoError(t, os.WriteFile(path+".other", []byte("other\n"), 0o600))
			l := opened(t, path)
			add(t, l, "before")
			require.NoError(t, touch(path))
			is, _ := os.ReadFile(path)
			for range 2 {
				_, err := l.Append(t.Context(), Entry{Type: "Action", Message: "after"})
				require.Error(t, err)
			}
			_, err := l.Trouble()
			assert.ErrorContains(t, err, path)
			_ = l.Close() // its trouble is told
			now, _ := os.ReadFile(path)
			assert.Equal(t, string(is), string(now))
		})
	}
}
