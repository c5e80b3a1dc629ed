package redfish

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// I1: what counts as a restart of the BMC between two good answers.
func TestHiddenRestarts(t *testing.T) {
	for name, tc := range map[string]struct {
		fresh, basic, closing bool
		gap                   time.Duration
		want                  bool
	}{
		"same connection":                        {gap: time.Second},
		"same connection, long after":            {gap: time.Hour},
		"same connection, by Basic":              {basic: true, gap: time.Hour},
		"new connection with the same token":     {fresh: true, gap: minBootTime - 1},
		"new connection after time for a boot":   {fresh: true, gap: minBootTime, want: true},
		"new connection by Basic":                {fresh: true, basic: true, gap: time.Millisecond, want: true},
		"announced, by Basic":                    {fresh: true, basic: true, closing: true, gap: minBootTime - 1},
		"announced, by Basic, time for a boot":   {fresh: true, basic: true, closing: true, gap: minBootTime, want: true},
		"announced, same token, time for a boot": {fresh: true, closing: true, gap: minBootTime, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
			var s restartDetector
			assert.False(t, s.indicatesRestart(true, tc.basic, tc.closing, now), "the first answer follows none")
			assert.Equal(t, tc.want, s.indicatesRestart(tc.fresh, tc.basic, tc.closing, now.Add(tc.gap)))
			assert.False(t, s.indicatesRestart(false, tc.basic, tc.closing, now.Add(tc.gap+time.Second)), "told once")
		})
	}
}

// I1: a service that ends connections without a word seems to restart once, until there
// was time for a real restart.
func TestSilentService(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	var s restartDetector
	answer := func(after time.Duration) bool { // on a new connection, by Basic
		now = now.Add(after)
		return s.indicatesRestart(true, true, s.endsSilently(), now)
	}
	const soon = minBootTime - 1
	assert.False(t, answer(0), "the first answer follows none")
	for range 2 {
		assert.False(t, s.endsSilently())
		assert.True(t, answer(soon), "the end of the connection was not announced")
		for range 3 {
			assert.True(t, s.endsSilently(), "it is asked to end each one")
			assert.False(t, answer(soon))
		}
		assert.True(t, answer(minBootTime), "there was time for a boot")
		assert.False(t, answer(soon), "its end was asked for")
	}

	s.lostConnection(now.Add(soon))
	assert.True(t, s.endsSilently())
	assert.False(t, answer(soon), "the loss was told")
	assert.True(t, answer(minBootTime))
	s.lostConnection(now.Add(minBootTime))
	assert.False(t, s.endsSilently(), "it may have been a restart, or its own end by the idle time")
}
