package redfish_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/bmc/bmctest"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/redfishsim"
)

// job is what is measured, and the requests that the protocol needs for it.
type job struct {
	name       string
	warm       bool
	requests   int
	handshakes int // TCP and TLS 1.3 are one round trip each
	do         func(context.Context, *redfish.Client) error
}

var jobs = []job{
	{"status, cold", false, 2, 2, status},              // login, system
	{"status, warm", true, 1, 0, status},               // system
	{"off and confirm, cold", false, 4, 2, offConfirm}, // login, system, reset, system
	{"off and confirm, warm", true, 2, 0, offConfirm},  // reset, system
}

func status(ctx context.Context, c *redfish.Client) error {
	_, err := c.Read(ctx)
	return err
}

func offConfirm(ctx context.Context, c *redfish.Client) error {
	if _, err := c.Send(ctx, bmc.CommandOff); err != nil {
		return err
	}
	return status(ctx, c)
}

// Each request is one round trip, and nothing is asked that need not be.
func TestRoundTrips(t *testing.T) {
	for _, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			sim, c := one(t)
			if j.warm {
				bmctest.Read(t, c)
			}
			requests, connections := c.Requests(), sim.Connections()
			require.NoError(t, j.do(t.Context(), c))
			assert.Equal(t, j.requests, c.Requests()-requests)
			assert.Equal(t, j.handshakes/2, sim.Connections()-connections)
		})
	}
}

// BenchmarkPower gives wall time and requests over TLS on loopback; a cold job
// ends its session, which is one request more that nobody waits for.
func BenchmarkPower(b *testing.B) {
	for _, j := range jobs {
		b.Run(j.name, func(b *testing.B) {
			sim, err := redfishsim.Start(redfishsim.Options{})
			require.NoError(b, err)
			defer sim.Stop()
			e, err := bmc.ParseEndpoint(sim.BMCAddress())
			require.NoError(b, err)
			d := bmc.Device{Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret"), TLS: bmc.TLS{CA: sim.CAFile()}}
			c, err := redfish.New(d, timing)
			require.NoError(b, err)
			if j.warm {
				require.NoError(b, status(b.Context(), c))
			}
			requests := 0
			for b.Loop() {
				before := c.Requests()
				require.NoError(b, j.do(b.Context(), c))
				requests += c.Requests() - before
				if !j.warm {
					b.StopTimer()
					require.NoError(b, c.Close(b.Context()))
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(requests)/float64(b.N), "requests/op")
			require.NoError(b, c.Close(context.Background()))
		})
	}
}
