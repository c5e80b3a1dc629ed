package redfish_test

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/redfish"
	"github.com/fenced/fenced/test/redfishsim"
)

const uuid1 = "4c4c4544-0042-4810-8056-b4c04f4d3132"

var timing = bmc.Timing{ReadTimeout: time.Minute, SendTimeout: time.Minute}

// start runs a simulated service until the test ends.
func start(t *testing.T, o redfishsim.Options) *redfishsim.Server {
	t.Helper()
	sim, err := redfishsim.Start(o)
	require.NoError(t, err)
	t.Cleanup(sim.Stop)
	return sim
}

// hostOf is the inventory's entry for the first system of sim.
func hostOf(t *testing.T, sim *redfishsim.Server) bmc.Device {
	t.Helper()
	e, err := bmc.ParseEndpoint(sim.BMCAddress())
	require.NoError(t, err)
	return bmc.Device{
		Driver: bmc.DriverRedfish, Endpoint: e, Username: "admin", Password: bmc.NewSecret("secret"),
		TLS: bmc.TLS{CA: sim.CAFile()},
	}
}

// open gives a client of h that is closed when the test ends.
func open(t *testing.T, h bmc.Device, tm bmc.Timing) *redfish.Client {
	t.Helper()
	c, err := redfish.New(h, tm)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// one is a service with one system, and a client of it.
func one(t *testing.T) (*redfishsim.Server, *redfish.Client) {
	t.Helper()
	sim := start(t, redfishsim.Options{UUID: uuid1})
	return sim, open(t, hostOf(t, sim), timing)
}

// giveUp reads, and gives up when the request has arrived.
func giveUp(t *testing.T, sim *redfishsim.Server, c *redfish.Client) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := len(sim.Requests())
	go func() {
		defer cancel()
		for len(sim.Requests()) == before && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := c.Read(ctx)
	return err
}

// closedPort is an address on loopback where nothing listens.
func closedPort(t *testing.T) (host string, port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	host, p, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	port, err = strconv.Atoi(p)
	require.NoError(t, err)
	return host, port
}
