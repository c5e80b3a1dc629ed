package state

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
)

// The stored format must not change: version 1 wrote this text, and it must be read and
// written in the same way.
func TestRunOnDisk(t *testing.T) {
	const stored = `{"v":1,"data":{"id":"r1","target":{"cluster":"prod","node":"worker-3"},"strategy":"PowerCycle","isolation":"deleteNode",` +
		`"limits":{"offDeadline":60000000000,"apiTimeout":0,"podsGoneTimeout":0,"onDeadline":0,"readyTimeout":0,"restoreTimeout":0,"runTimeout":0,` +
		`"minPowerInterval":0,"maxAttempts":3,"powerOnFoundOff":true,"reprovision":false},"trigger":"by hand","step":"PowerOff","attempt":1,` +
		`"started":"2026-03-01T12:00:00Z","stepStarted":"2026-03-01T12:00:00Z","intent":{"action":"","at":"0001-01-01T00:00:00Z"},"steps":null}}`
	run := must.Do(runRecord.Decode(Record{Kind: KindRun, Key: "r1", Version: 4, Data: []byte(stored)}))(t)
	require.Equal(t, uint64(4), run.Version)
	require.Equal(t, time.Minute, run.Limits.OffDeadline)
	require.Equal(t, remediate.PowerOff, run.Step)
	data := must.Do(encode(run))(t)
	require.JSONEq(t, stored, string(data))
}

func FuzzDecodeRun(f *testing.F) {
	good := must.Do(encode(remediate.Run{ID: "r1", Step: remediate.Held, Started: time.Unix(1, 0).UTC()}))(f)
	f.Add(good)
	f.Add([]byte(`{"v":2}`))
	f.Add([]byte(`{"v":1,"data":{"id":"r1","step":"Held","steps":[{"step":"PowerOff"}],"offLease":{}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		run, err := runRecord.Decode(Record{Kind: KindRun, Key: "r1", Data: data})
		if err != nil {
			return
		}
		var version struct{ V int }
		require.NoError(t, json.Unmarshal(data, &version))
		require.Equal(t, codecVersion, version.V, "another version was accepted")
		once, err := encode(run)
		require.NoError(t, err, "what was read cannot be saved")
		again, err := runRecord.Decode(Record{Kind: KindRun, Key: "r1", Data: once})
		require.NoError(t, err, "what was saved cannot be read")
		twice := must.Do(encode(again))(t)
		require.Equal(t, once, twice)
	})
}
