package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/timeline"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Why the timelines begin with the start is in the log.
func TestUnreadableAuditLogIsTold(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	folder := t.TempDir()
	n := recalledNotes(folder, zap.New(core)) // a folder is no log
	assert.Empty(t, n.Of("", "n-1"))
	if assert.Equal(t, 1, logs.Len()) {
		said := logs.All()[0].ContextMap()
		assert.Equal(t, folder, said["file"])
		assert.Contains(t, said["error"], "is a directory")
	}
}

// A daemon that restarts knows what happened before from its audit log.
func TestNotesOutliveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	require.NoError(t, timeline.New().Recall(path), "there is no log before the first start")
	log, err := audit.Open(path, audit.Options{Origin: audit.Origin{Version: "1", Host: "h", Store: "s"}, OnError: func(error) {}})
	require.NoError(t, err)
	for _, e := range []event.Event{
		{Cluster: "prod", Node: "n-1", Type: event.Ordered, Actor: "anna", Message: "anna holds it: disk"},
		{Cluster: "prod", Node: "n-1", Type: event.Failed, Run: "r-1", Reason: "BMCBusy", Message: "busy"},
	} {
		_, err = log.Append(t.Context(), entryOf(e))
		require.NoError(t, err)
	}
	require.NoError(t, log.Close())
	n := timeline.New()
	require.NoError(t, n.Recall(path))
	list := n.Of("prod", "n-1")
	require.Len(t, list, 2)
	assert.Equal(t, "anna", list[0].Actor)
	assert.NotZero(t, list[0].At)
	require.NotNil(t, n.LastError("r-1"))
	assert.Equal(t, "BMCBusy: busy", n.LastError("r-1").Text())
}
