package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "0": 0, "0d": 0, "-1h": -time.Hour, "10d30s": 240*time.Hour + 30*time.Second,
	} {
		d, err := parseDays(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "d", "2", "2dd", "-2d", "1.5d", "2d-1h", "99999999999d", "soon", "2 d"} {
		_, err := parseDays(text)
		assert.Error(t, err, text)
	}
}
