package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLogIsHarmless: what a BMC or a cluster says is logged, and obeyed by no terminal.
func TestLogIsHarmless(t *testing.T) {
	const evil = "a\u009b2J\u202e\x7f\x1b[m"
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer f.Close()
	os.Stderr = f
	log, err := newLogger("info")
	require.NoError(t, err)
	log.Info(evil)
	text, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	assert.Contains(t, string(text), `"a\u009b2J\u202e\u007f\u001b[m"`)
	var line struct{ Msg string }
	require.NoError(t, json.Unmarshal(text, &line))
	assert.Equal(t, evil, line.Msg)
}
