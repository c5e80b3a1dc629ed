package power

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

// restarting is a BMC that says Off whatever is true, in the session that it is in.
type restarting struct{ session uint64 }

func (p *restarting) Read(context.Context) (bmc.Reading, error) {
	return bmc.Reading{State: bmc.Off, At: time.Now(), Session: p.session}, nil
}

func (p *restarting) Send(context.Context, bmc.Command) (bmc.Receipt, error) {
	return bmc.Receipt{}, nil
}

func (p *restarting) Close(context.Context) error { return nil }

// A BMC takes the Off, restarts before it carries it out, and says Off of a chassis that
// it has not looked at yet: the Off is sent again, and what is read after that counts. // I1
func TestOffBeforeARestartOfTheBMCDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &restarting{session: 1}
		s := newSession(bmc.Host{Levels: []bmc.Level{{Devices: []bmc.Device{{}}}}}, 0, p, ReadTiming{ReadTimeout: time.Second, OffReadSpacing: 3 * time.Second})
		proven := func() bool {
			for range 3 {
				_, err := s.Read(t.Context())
				require.NoError(t, err)
				time.Sleep(2 * time.Second)
			}
			return s.accepted.OffAccepted() && s.proof.Proven(time.Now())
		}
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		assert.False(t, proven(), "nobody knows in which session it was accepted")
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		assert.True(t, proven())
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		p.session = 2
		assert.False(t, proven())
		require.NoError(t, s.Send(t.Context(), bmc.CommandOff))
		assert.True(t, proven())
	})
}
