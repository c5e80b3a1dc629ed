package logging

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"
)

// evil is what a terminal would obey, and more than one line.
const evil = "a\u009b2J\u202e\x7f\x1b[m\nPRIORITY=0"

// TestLogIsHarmless: what a BMC or a cluster says is logged, and obeyed by no terminal.
func TestLogIsHarmless(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer f.Close()
	log, _ := newLogger(zapcore.InfoLevel, jsonEncoder(), writeJSON(f))
	log.Info(evil)
	require.NoError(t, log.Sync())
	text, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	assert.Contains(t, string(text), `"a\u009b2J\u202e\u007f\u001b[m\nPRIORITY=0"`)
	var line struct{ Msg string }
	require.NoError(t, json.Unmarshal(text, &line))
	assert.Equal(t, evil, line.Msg)
}
