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
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/scene"
)

// The small form of make load: no host is lost, and nothing is done twice, however
// often fenced is killed.
func TestManyHostsSurviveKills(t *testing.T) {
	dice.OnlyInSoak(t)
	dice.Say(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	programs := must.Do(scene.Build(ctx, t.TempDir(), false))(t)
	r, err := Play(ctx, Options{
		Hosts: 20, Nodes: 50, LifeMin: 3 * time.Second, LifeMax: 8 * time.Second, MinKills: 3, Seed: dice.Seed(), Quick: true,
		Programs: programs, Progress: os.Stderr,
	})
	if r != nil {
		t.Logf("\n%s", r)
	}
	require.NoError(t, err)
	assert.Empty(t, r.Violations)
	assert.GreaterOrEqual(t, r.Kills, 3)
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
