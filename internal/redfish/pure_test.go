package redfish

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stmcginnis/gofish/redfish"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
	"github.com/fenced/fenced/test/redfishsim"
)

// All tests of the package have more time, because a busy machine delays any of these by many
// seconds. Close has less, because the suite of all drivers bounds it, and so has a body that
// never comes, which some tests wait for.
func init() {
	dialTimeout, tlsTimeout, headerTimeout, closeTimeout = time.Minute, time.Minute, time.Minute, 20*time.Second
	loginTimeout, bodyTimeout = time.Minute, 2*time.Second
}

// A TLS session that is resumed is held to the pin and to the chain as they are now, whoever else has used it.
func TestResumedSessionIsChecked(t *testing.T) {
	sim, other := must.Do(redfishsim.Start(redfishsim.Options{}))(t), must.Do(redfishsim.Start(redfishsim.Options{}))(t)
	defer sim.Stop()
	defer other.Stop()
	right := must.Do(tlsConfig(bmc.TLS{CA: sim.CAFile(), PinSHA256: sim.SPKI()}))(t)
	answer := func(conf *tls.Config) (resumed bool, err error) {
		conf = conf.Clone()
		conf.ClientSessionCache = right.ClientSessionCache
		conn, err := tls.Dial("tcp", sim.Addr(), conf)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		if _, err = io.WriteString(conn, "GET /redfish/v1/ HTTP/1.0\r\n\r\n"); err == nil {
			_, err = conn.Read(make([]byte, 1)) // and the ticket before it
		}
		return conn.ConnectionState().DidResume, err
	}
	for _, want := range []bool{false, true, true} {
		assert.Equal(t, want, must.Do(answer(right))(t))
	}
	_, err := answer(must.Do(tlsConfig(bmc.TLS{PinSHA256: other.SPKI()}))(t))
	require.ErrorContains(t, err, "not the pinned one")
	must.Do(answer(right))(t)
	_, err = answer(must.Do(tlsConfig(bmc.TLS{CA: other.CAFile()}))(t))
	require.ErrorContains(t, err, "unknown authority")
	must.Do(answer(right))(t)
	late := right.Clone()
	late.Time = func() time.Time { return time.Now().Add(48 * time.Hour) }
	_, err = answer(late)
	require.ErrorContains(t, err, "expired")
}

// BenchmarkReadOnNewConnection is a reading at a service that ends each connection, with what the service does for it:
// with the TLS session of the last connection, and without it.
func BenchmarkReadOnNewConnection(b *testing.B) {
	key := must.Do(rsa.GenerateKey(rand.Reader, 2048))(b)
	sim := must.Do(redfishsim.Start(redfishsim.Options{Key: key}))(b)
	defer sim.Stop()
	sim.Faults(func(f *redfishsim.Faults) { f.CloseConnections = true })
	for name, resume := range map[string]bool{"resumed": true, "whole": false} {
		b.Run(name, func(b *testing.B) {
			c := must.Do(New(bmc.Device{
				Driver: bmc.DriverRedfish, Endpoint: must.Do(bmc.ParseEndpoint(sim.BMCAddress()))(b),
				Username: "admin", Password: bmc.NewSecret("secret"), TLS: bmc.TLS{CA: sim.CAFile()},
			}, bmc.Timing{ReadTimeout: time.Minute, SendTimeout: time.Minute}))(b)
			defer func() { _ = c.Close(context.Background()) }()
			if !resume {
				c.wire.base.TLSClientConfig.ClientSessionCache = nil
			}
			for b.Loop() {
				must.Do(c.Read(b.Context()))(b)
			}
		})
	}
}

// I3: whatever a system allows, off is ForceOff or nothing, on is On or ForceOn.
func TestChooseIsNeverSoftOrCycling(t *testing.T) {
	known := []redfish.ResetType{
		redfish.OnResetType, redfish.ForceOnResetType, redfish.ForceOffResetType, redfish.ForceRestartResetType,
		redfish.GracefulRestartResetType, redfish.GracefulShutdownResetType, redfish.PushPowerButtonResetType,
		redfish.PowerCycleResetType, redfish.NmiResetType, "", "forceoff",
	}
	law.Check(t, func(t *rapid.T) {
		r := resetAction{target: "/reset", types: rapid.SliceOf(rapid.SampledFrom(known)).Draw(t, "types")}
		listed := func(k redfish.ResetType) bool { return len(r.types) == 0 || slices.Contains(r.types, k) }
		off, err := r.choose(bmc.CommandOff)
		assert.Equal(t, listed(redfish.ForceOffResetType), err == nil)
		if err == nil {
			assert.Equal(t, redfish.ForceOffResetType, off)
		}
		on, err := r.choose(bmc.CommandOn)
		assert.Equal(t, listed(redfish.OnResetType) || listed(redfish.ForceOnResetType), err == nil)
		if err == nil {
			assert.Contains(t, []redfish.ResetType{redfish.OnResetType, redfish.ForceOnResetType}, on)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"1":    time.Second,
		"3600": maxRetryAfter,
		now.Add(2 * time.Second).Format(http.TimeFormat): 2 * time.Second,
		now.Add(time.Hour).Format(http.TimeFormat):       maxRetryAfter,
	} {
		assert.Equal(t, want, retryAfter(header, time.Second, now), header)
	}
	for _, header := range []string{"", "0", "-5", "soon", "99999999999999999999", now.Add(-time.Hour).Format(http.TimeFormat)} {
		assert.InDelta(t, time.Second, retryAfter(header, time.Second, now), float64(200*time.Millisecond), header)
	}
}

func TestUntypedErrorsBreakTheProtocol(t *testing.T) {
	assert.Equal(t, bmc.KindProtocol, kindOf(errors.New("anything")))
}

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
