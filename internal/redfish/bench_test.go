package redfish_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/redfishsim"
)

// The figures of research: warm 0.29 ms and 1 request, gofish alone.
func BenchmarkRead(b *testing.B) {
	sim, err := redfishsim.Start(redfishsim.Options{})
	require.NoError(b, err)
	defer sim.Stop()
	e, err := bmc.ParseEndpoint(sim.BMCAddress())
	require.NoError(b, err)
	h := bmc.Device{Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret"), TLS: bmc.TLS{CA: sim.CAFile()}}
	run := func(b *testing.B, each func(*redfish.Client)) {
		c, err := redfish.New(h, timing)
		require.NoError(b, err)
		_, err = c.Read(context.Background())
		require.NoError(b, err)
		before := c.Requests()
		for b.Loop() {
			_, err := c.Read(context.Background())
			require.NoError(b, err)
			each(c)
		}
		b.ReportMetric(float64(c.Requests()-before)/float64(b.N), "requests/op")
		require.NoError(b, c.Close(context.Background()))
	}
	b.Run("warm", func(b *testing.B) { run(b, func(*redfish.Client) {}) })
	b.Run("session each", func(b *testing.B) {
		run(b, func(c *redfish.Client) { require.NoError(b, c.Close(context.Background())) })
	})
}
