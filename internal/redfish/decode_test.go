package redfish

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stmcginnis/gofish/redfish"
	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/law"
)

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

func TestPrintable(t *testing.T) {
	assert.Equal(t, "a b", bmc.Printable("a\nb", 10))
	assert.Equal(t, "ä", bmc.Printable("ää", 3), "no half character")
	assert.Len(t, bmc.Printable(strings.Repeat("x", 1000), maxText), maxText)
}

func TestUntypedErrorsBreakTheProtocol(t *testing.T) {
	assert.Equal(t, bmc.KindProtocol, kindOf(errors.New("anything")))
}
