package main

import (
	"bytes"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

func TestCleanIsHarmlessAndKeepsText(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		harmless := true
		for _, r := range s {
			harmless = harmless && unicode.IsPrint(r)
		}
		got := clean(s)
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q holds %U", got, r)
			}
		}
		if harmless && got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
	assert.Equal(t, `a\x1b]0;x\a b\nc\u202ed`, clean("a\x1b]0;x\x07 b\nc\u202ed"))
}

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
