package audit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var origin = Origin{Version: "1.2.3", Host: "bastion", Store: "STOREID"}

func opened(t *testing.T, path string) *Log {
	t.Helper()
	l, err := Open(path, Options{Origin: origin})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() }) // a second Close does nothing
	return l
}

func newPath(t *testing.T) string { return filepath.Join(t.TempDir(), "audit.jsonl") }

func appendN(t *testing.T, l *Log, n int) (last Head) {
	t.Helper()
	for i := range n {
		h, err := l.Append(t.Context(), Entry{Type: "Action", Node: fmt.Sprintf("n-%d", i), Action: "SendOff"})
		require.NoError(t, err)
		last = h
	}
	return last
}

func lines(t *testing.T, path string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return bytes.SplitAfter(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

// types are those of all entries at path, which must be whole.
func types(t *testing.T, path string) (all []string) {
	t.Helper()
	_, err := Walk(path, func(l Line) error { all = append(all, l.Entry.Type); return nil })
	require.NoError(t, err)
	return all
}
