package ipmi

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/ipmisim"
	"github.com/fenced/fenced/test/pace"
)

// dropsSuites is a network to a BMC that does not answer a request with one of the
// suites.
func dropsSuites(t *testing.T, b ipmisim.BMC, dropped ...suite) *ipmisim.Relay {
	relay := relayTo(t, b)
	relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		asked := func(s suite) bool { return d.Data[headerLen+12] == s.auth }
		if d.Payload() == ipmisim.PayloadOpenRequest && slices.ContainsFunc(dropped, asked) {
			return nil
		}
		return []ipmisim.Datagram{d}
	})
	return relay
}

// TestSuiteThatIsDropped: a BMC that drops what it does not support is asked for the next
// suite, and is not asked for the first again.
func TestSuiteThatIsDropped(t *testing.T) {
	t.Parallel()
	onPeers(t, ipmisim.Options{}, func(t *testing.T, p peer, b ipmisim.BMC) {
		if p.suite != 3 {
			t.Skip("it has no other suite")
		}
		relay := dropsSuites(t, b, suites[0])
		c := clientAt(t, relay.Addr())
		_, err := c.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 3, c.suites[0].id)
		require.NoError(t, c.Close(t.Context()))
		costs(t, []int{4}, func() []int {
			require.NoError(t, c.Close(t.Context()))
			at := relay.Asked()
			_, err = c.Read(t.Context())
			require.NoError(t, err)
			return []int{relay.Asked() - at}
		})
	})
}

// TestSuiteAfterARefusedOne: the BMC drops nothing, and was only away while it was asked
// for its suite. The refusal of the other one is not its last word.
func TestSuiteAfterARefusedOne(t *testing.T) {
	t.Parallel()
	relay := relayTo(t, startGo(t, ipmisim.Options{Suites: []int{17}}))
	lost := 0
	relay.Filter(func(d ipmisim.Datagram) []ipmisim.Datagram {
		if d.Payload() == ipmisim.PayloadOpenRequest && lost < openTries {
			lost++
			return nil
		}
		return []ipmisim.Datagram{d}
	})
	c := clientAt(t, relay.Addr())
	_, err := c.Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 17, c.suites[0].id)
}

// TestNoSuiteIsAnswered names the key, and what became of each suite.
func TestNoSuiteIsAnswered(t *testing.T) {
	t.Parallel()
	b := startGo(t, ipmisim.Options{})
	for name, c := range map[string]struct {
		suites, dropped []int
		timeout         time.Duration
		kind            bmc.Kind
		want            string
	}{
		"both are dropped":     {nil, []int{17, 3}, 5 * time.Second, bmc.KindUnreachable, "cipher suite 17: not answered, 3: not answered; the key cipherSuites"},
		"the only one":         {[]int{17}, []int{17}, time.Second, bmc.KindUnreachable, "cipher suite 17: not answered; the key cipherSuites"},
		"no time for a second": {nil, []int{17, 3}, 500 * time.Millisecond, bmc.KindUnreachable, "cipher suite 17: not answered, 3: not asked for; the key cipherSuites"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dropped []suite
			for _, n := range c.dropped {
				dropped = append(dropped, suites[slices.IndexFunc(suites, func(s suite) bool { return s.id == n })])
			}
			h := hostAt(t, dropsSuites(t, b, dropped...).Addr())
			h.CipherSuites = c.suites
			pace.Until(t, c.want, func() bool { // a busy machine may have asked for none
				_, err := New(h, bmc.Timing{ReadTimeout: c.timeout, SendTimeout: time.Second}).Read(t.Context())
				assert.Equal(t, c.kind, bmc.KindOf(err), "%v", err)
				t.Log(err)
				return strings.Contains(err.Error(), c.want)
			})
		})
	}
}
