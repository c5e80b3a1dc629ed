package audit

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The end of a log is read without the rest, also with a line that is cut at either end.
func TestTail(t *testing.T) {
	path := newPath(t)
	var seqs []uint64
	collect := func(e Entry) { seqs = append(seqs, e.Seq) }
	require.NoError(t, Tail(path, 1000, collect), "there is no log yet")
	l := opened(t, path)
	appendN(t, l, 50)
	require.NoError(t, l.Close())
	require.NoError(t, Tail(path, 1<<20, collect))
	assert.Len(t, seqs, 51, "Opened and all others")

	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(`{"prev":"torn`)
	require.NoError(t, err)
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
