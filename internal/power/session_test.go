package power

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// A BMC takes the Off, restarts before it carries it out, and says Off of a chassis that
// it has not looked at yet: the Off is sent again, and what is read after that counts. // I1
func TestOffBeforeARestartOfTheBMCDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := says(bmc.Off)
		s := newSession(bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{{}}}}}, 0, p, ReadTiming{ReadTimeout: time.Second, OffReadSpacing: 3 * time.Second})
		proven := func() bool {
			for range 3 {
				_, err := s.Read(t.Context())
				require.NoError(t, err)
				time.Sleep(2 * time.Second)
			}
			return s.Accepted.OffAccepted() && s.Proof.Proven(time.Now())
		}
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		assert.False(t, proven(), "nobody knows in which session it was accepted")
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		assert.True(t, proven())
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		p.reading.Session++
		assert.False(t, proven())
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		assert.True(t, proven())
	})
}
