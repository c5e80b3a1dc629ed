package redfish

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stmcginnis/gofish/redfish"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
)

// FuzzSystem feeds the decoder anything: Off is only ever the exact word in the
// exact place, and what is kept is bounded text.
func FuzzSystem(f *testing.F) {
	for _, s := range []string{
		`{"@odata.type":"#ComputerSystem.v1_20_0.ComputerSystem","PowerState":"Off","UUID":"u","SerialNumber":"s"}`,
		`{"PowerState":"PoweringOff"}`, `{"PowerState":null}`, `{"PowerState":["Off"]}`, `{"POWERSTATE":"Off"}`, `null`, `[]`,
		`{"Actions":{"#ComputerSystem.Reset":{"target":"/x","ResetType@Redfish.AllowableValues":["ForceOff"]}}}`,
		`{"Actions":{"#ComputerSystem.Reset":{"target":7}}}`, `{"UUID":5,"SerialNumber":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var o object
		if json.Unmarshal(b, &o) != nil || o == nil {
			return
		}
		s := asSystem("/s", o)
		r := s.reading(time.Now())
		var plain map[string]any
		require.NoError(t, json.Unmarshal(b, &plain))
		assert.Equal(t, plain["PowerState"] == "Off", r.State == bmc.Off)
		assert.Equal(t, plain["PowerState"] == "On", r.State == bmc.On)
		assert.LessOrEqual(t, len(r.Raw), maxRaw)
		assert.LessOrEqual(t, len(r.Identity.UUID), maxIdentity)
		assert.True(t, utf8.ValidString(r.Raw))
		if kind, err := s.reset.choose(bmc.CommandOff); err == nil {
			assert.Equal(t, redfish.ForceOffResetType, kind)
		}
	})
}

// I3: whatever a system allows, off is ForceOff or nothing, on is On or ForceOn.
func TestChooseIsNeverSoftOrCycling(t *testing.T) {
	known := []redfish.ResetType{
		redfish.OnResetType, redfish.ForceOnResetType, redfish.ForceOffResetType, redfish.ForceRestartResetType,
		redfish.GracefulRestartResetType, redfish.GracefulShutdownResetType, redfish.PushPowerButtonResetType,
		redfish.PowerCycleResetType, redfish.NmiResetType, "", "forceoff",
	}
	rapid.Check(t, func(t *rapid.T) {
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

func TestPrintable(t *testing.T) {
	assert.Equal(t, "a b", printable("a\nb", 10))
	assert.Equal(t, "ä", printable("ää", 3), "no half character")
	assert.Len(t, printable(strings.Repeat("x", 1000), maxText), maxText)
}

func TestUntypedErrorsBreakTheProtocol(t *testing.T) {
	assert.Equal(t, bmc.KindProtocol, kindOf(errors.New("anything")))
}
