package engine_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/sweep"
)

// given is the passwords that BMCs were asked with, by address.
type given struct {
	mu sync.Mutex
	to map[string][]string
}

// at is the last one.
func (g *given) at(host string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if all := g.to[host]; len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

func (g *given) were(host, password string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.to[host], password)
}

// sweeping runs health checks over an engine until stop.
func sweeping(t *testing.T, w *world, e *engine.Engine) (*sweep.Sweep, *given, func()) {
	g := &given{to: map[string][]string{}}
	actors := power.NewActors(func(d bmc.Device) (bmc.Power, error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.to[d.Endpoint.Host] = append(g.to[d.Endpoint.Host], cmp.Or(d.Password.Reveal(), "none"))
		return w.bmc(), nil
	})
	s := sweep.New(sweep.Options{Engine: e, Open: actors.Patient(), Urgent: actors.Urgent(), Every: time.Minute,
		ReadTimeout: 5 * time.Second, Concurrency: sweep.DefaultConcurrency, OnEvent: func(event.Event) {}, OnLatency: func(bmc.Driver, time.Duration) {}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, g, func() {
		cancel()
		require.NoError(t, <-done)
		time.Sleep(time.Minute) // until the clients are closed
	}
}

// The health check, too, sends the password of a BareMetalHost only to the BMC with which
// it was pinned. Otherwise anyone who may write that object could choose where the
// password goes. // I10
func TestPasswordDoesNotFollowABareMetalHost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		const otherAddress = "203.0.113.66"
		m := newMetal(w)
		w.SetReady("True")
		e, _, stop := start(t, w, store, nil)
		time.Sleep(2 * time.Second)
		checkHealthy(t, e)
		s, passwords, end := sweeping(t, w, e)
		time.Sleep(3 * time.Minute)
		require.Equal(t, "hush", passwords.at("192.0.2.10"))

		m.set("h-1", func(h *policy.Host) { h.Address = "redfish://" + otherAddress + "/redfish/v1/Systems/1" })
		time.Sleep(15 * time.Minute)
		assert.Empty(t, passwords.at(otherAddress), "nobody has vouched for that address")
		assert.True(t, subjectOf(t, e, "ns/h-1").Host.Levels[0].Devices[0].Password.Empty())
		list, err := s.Results(t.Context(), "c")
		require.NoError(t, err)
		require.Len(t, list, 1)
		assert.Equal(t, reason.AddressChanged, list[0].Reason)
		assert.False(t, list[0].Dependable)

		_, err = s.Test(t.Context(), "c", "n-1")
		refusedFor(t, err, reason.AddressChanged)
		assert.Empty(t, passwords.at(otherAddress), "who wants it asked enrolls it")

		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(3 * time.Minute)
		assert.Equal(t, "hush", passwords.at(otherAddress))
		list, err = s.Results(t.Context(), "c")
		require.NoError(t, err)
		assert.True(t, list[0].Dependable)
		end()
		stop()
	})
}
