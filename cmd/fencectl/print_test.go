package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTableAlignsColouredCells(t *testing.T) {
	tab := newTable("NODE", "PASS", "X")
	tab.add("n-1", cell{text: "no", color: red}, "é")
	tab.add("a-longer-one", "yes", "")
	var b bytes.Buffer
	require.NoError(t, tab.write(&b, painter(false), "T"))
	assert.Equal(t, "\nT\nNODE          PASS  X\nn-1           no    é\na-longer-one  yes\n", b.String())
	b.Reset()
	require.NoError(t, tab.write(&b, painter(true), ""))
	assert.Equal(t, "NODE          PASS  X\nn-1           \x1b[31mno\x1b[0m    é\na-longer-one  yes\n", b.String())
	b.Reset()
	require.NoError(t, newTable("NODE").write(&b, painter(true), "T"))
	assert.Empty(t, b.String())
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                      "0s",
		1234 * time.Millisecond:           "1.2s",
		59999 * time.Millisecond:          "1m0s",
		time.Hour + 1499*time.Millisecond: "1h0m1s",
	} {
		assert.Equal(t, want, span(d))
	}
}

func TestCutCountsLetters(t *testing.T) {
	assert.Equal(t, "éé", cut("éééé", 3))
	assert.Equal(t, "éé", cut("éé", 3))
	assert.Equal(t, "éééé", cut("éééé", 0), "no terminal, no width")
}
