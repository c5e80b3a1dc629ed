package ipmi

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
)

// Two BMCs have one address, or it has gone to another: who was read is not who
// answers the command. A command goes to the machine that was read, or to none. // I8
func TestCommandIsNotGivenToAnotherBMC(t *testing.T) {
	t.Parallel()
	b := startGo(t, ipmisim.Options{Suites: []int{17}})
	c := clientAt(t, b.Addr())
	r, err := c.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, guidText, r.Identity.UUID)

	require.NoError(t, b.SetUUID(otherGUID)) // from here on it is another BMC,
	require.NoError(t, b.Restart())          // which does not know the session
	for range 2 {                            // the second finds an open session with it
		_, err = c.Send(t.Context(), bmc.CommandOff)
		e, typed := errors.AsType[*bmc.Error](err)
		require.True(t, typed, "%v", err)
		assert.Equal(t, bmc.KindIdentity, e.Kind)
		assert.Equal(t, bmc.SentNo, e.Sent)
	}
	assert.True(t, b.Power(), "the other machine was switched off")

	r, err = c.Read(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, guidText, r.Identity.UUID, "the next look shows it")
	_, err = c.Send(t.Context(), bmc.CommandOff)
	require.NoError(t, err, "who asked knows by now whom")
	assert.False(t, b.Power())
}

// A session that another use opened with another BMC is no leave to command it. // I8
func TestDescribeIsNoLookAtWhoAnswers(t *testing.T) {
	b := startGo(t, ipmisim.Options{Suites: []int{17}})
	c := clientAt(t, b.Addr())
	_, err := c.Read(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.SetUUID(otherGUID))
	require.NoError(t, b.Restart())
	_, err = c.Describe(t.Context())
	require.NoError(t, err)
	_, err = c.Send(t.Context(), bmc.CommandOff)
	assert.Equal(t, bmc.KindIdentity, bmc.KindOf(err))
	assert.True(t, b.Power())
}
