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
