package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTableAlignsColouredCells(t *testing.T) {
	tab := newTable("NODE", "PASS", "X")
	tab.add("n-1", cell{text: "no", color: red}, "é")
	tab.add("a-longer-one", "yes", "")
	var b bytes.Buffer
	require.NoError(t, tab.write(&b, painter{}, "T"))
	assert.Equal(t, "\nT\nNODE          PASS  X\nn-1           no    é\na-longer-one  yes\n", b.String())
	b.Reset()
	require.NoError(t, tab.write(&b, painter{color: true}, ""))
	assert.Equal(t, "NODE          PASS  X\nn-1           \x1b[31mno\x1b[0m    é\na-longer-one  yes\n", b.String())
	b.Reset()
	require.NoError(t, newTable("NODE").write(&b, painter{color: true}, "T"))
	assert.Empty(t, b.String())
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                      "0s",
		1234 * time.Millisecond:           "1.2s",
		59999 * time.Millisecond:          "59s",
		5*time.Minute + 30*time.Second:    "5m30s",
		time.Hour + 1499*time.Millisecond: "60m",
		4*time.Hour + 20*time.Minute:      "4h20m",
		50 * time.Hour:                    "2d2h",
	} {
		assert.Equal(t, want, span(d))
	}
}

func TestCutCountsLetters(t *testing.T) {
	assert.Equal(t, "éé", cut("éééé", 3))
	assert.Equal(t, "éé", cut("éé", 3))
	assert.Equal(t, "éééé", cut("éééé", 0), "no terminal, no width")
}

func TestWhenIsRelativeButForWide(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	c := &cli{output: "table"}
	assert.Equal(t, []string{"-", "5m ago", "in 3h"}, []string{c.when(time.Time{}, now), c.when(now.Add(-5*time.Minute), now), c.when(now.Add(3*time.Hour), now)})
	c.output = "wide"
	assert.Equal(t, "2026-01-01T11:55:00Z", c.when(now.Add(-5*time.Minute), now))
	assert.Equal(t, "2026-01-01T11:55:00Z", c.age(now.Add(-5*time.Minute), now))
}

// A table is never wider than its painter allows, and loses no letter.
func TestTableFitsTheWidth(t *testing.T) {
	long := strings.Repeat("the BMC did not answer; ", 20)
	name := strings.Repeat("n", 90)
	for _, width := range []int{60, 80, 120} {
		tab := newTable("NODE", "MESSAGE", "X")
		tab.add(name, cell{text: long, color: red}, "é")
		tab.add("n-1", "-", "x")
		var b bytes.Buffer
		require.NoError(t, tab.write(&b, painter{width: width}, ""))
		for line := range strings.Lines(b.String()) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width, line)
		}
		letters := func(text string) int { return strings.Count(text, "n") + strings.Count(text, "B") }
		assert.Equal(t, letters(name+long+"n-1"), letters(b.String()))
	}
	assert.Equal(t, []string{"a b", "cccc", "c"}, wrap("a b   ccccc", 4))
	assert.Equal(t, []string{"a b   ccccc"}, wrap("a b   ccccc", 0))
	assert.Equal(t, []string{"  ab", "cd e"}, wrap("  abcd e", 4), "an indent is no line of its own")
}
