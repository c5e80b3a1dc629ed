package audit

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// texts are the messages in the files that have the log's name, in order.
func texts(t *testing.T, path string) (list []string) {
	t.Helper()
	_, err := Walk(path, func(l Line) error {
		list = append(list, l.Entry.Message)
		return nil
	})
	require.NoError(t, err)
	return list
}

// add appends an entry that says something.
func add(t *testing.T, l *Log, text string) Head {
	t.Helper()
	h, err := l.Append(t.Context(), Entry{Type: "Action", Message: text})
	require.NoError(t, err)
	return h
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
	info, err := os.Stat(path)
	require.NoError(t, err)
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
	l, err := Open(path, Options{Origin: origin, MaxFile: 2000})
	require.NoError(t, err)
	first := appendN(t, l, 1)
	require.NoError(t, os.Link(path, path+".new"))
	last := appendN(t, l, 40)
	require.NoError(t, l.Close())
	_, err = Verify(path, first, last)
	require.NoError(t, err)
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
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteString("x\n")
			require.NoError(t, err)
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
