package typo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHint(t *testing.T) {
	known := []string{"quietPeriod", "viewMaxAge", "Ready"}
	for wrong, want := range map[string]string{
		"quietperiod": " (did you mean quietPeriod?)", "viewMaxAg": " (did you mean viewMaxAge?)", "ready": " (did you mean Ready?)", "Raedy": " (did you mean Ready?)",
		"x": "", "isolation": "", strings.Repeat("r", 65): "",
	} {
		assert.Equal(t, want, Hint(wrong, known), wrong)
	}
}

func TestTabNear(t *testing.T) {
	assert.Equal(t, 2, TabNear([]byte("a:\n\tb: 1\n"), 2))
	assert.Equal(t, 3, TabNear([]byte("a:\n  b: 1\n  \tc: 1\n"), 2), "the parser names the line before")
	assert.Equal(t, 2, TabNear([]byte("a:\n\tb: 1\n  c: 1\n"), 3), "or the one after")
	assert.Zero(t, TabNear([]byte("a: \tx\n\t\nb: @\n"), 3), "a tab that indents nothing is none")
	assert.Zero(t, TabNear([]byte("\ta: 1\n\n\n\nb: @\n"), 5), "one far away is not the cause")
}
