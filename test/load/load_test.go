package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/scene"
)

// The small form of make load: no host is lost, and nothing is done twice, however
// often fenced is killed. It is killed at given moments, in a soak at random.
func TestManyHostsSurviveKills(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane, which -short leaves out")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	programs, err := scene.Build(ctx, t.TempDir(), false)
	require.NoError(t, err)
	o := Options{Hosts: 20, Nodes: 50, MinKills: 4, KillAt: []Moment{{Begun: 1}, {Begun: 15}, {Back: 1}, {Back: 10}}, Quick: true, Programs: programs, Progress: os.Stderr}
	if dice.Soak() {
		dice.Say(t)
		o.LifeMin, o.LifeMax, o.KillAt, o.Seed = 3*time.Second, 8*time.Second, nil, dice.Seed()
	}
	r, err := Play(ctx, o)
	if r != nil {
		t.Logf("\n%s", r)
	}
	require.NoError(t, err)
	assert.Empty(t, r.Violations)
	assert.GreaterOrEqual(t, r.Kills, o.MinKills)
	assert.Equal(t, 20, r.Deletions)
	assert.Positive(t, r.Resumed)
}

func TestOffDuring(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	cycle := []ipmisim.Change{{At: at(10), On: false}, {At: at(20), On: true}}
	assert.True(t, offDuring(cycle, at(11), at(12)))
	assert.True(t, offDuring(cycle, at(10), at(19)))
	assert.False(t, offDuring(cycle, at(9), at(12)), "on when the request came")
	assert.False(t, offDuring(cycle, at(15), at(20)), "on before it was answered")
	assert.False(t, offDuring(cycle, at(21), at(22)))
	assert.False(t, offDuring(nil, at(1), at(2)))
}
