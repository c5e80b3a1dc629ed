package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
)

// A thousand Nodes show that the measurement measures; make bench-scale has the sizes that count. MeasureScale itself fails when something that
// nothing was wrong with was touched.
func TestScaleMeasures(t *testing.T) {
	dice.OnlyInSoak(t)
	r := must.Do(MeasureScale(t.Context(), ScaleOptions{
		Nodes: 1000, Rate: 20, Window: 3 * time.Second, Samples: 3, Sweep: time.Minute, Rounds: 1, Progress: t.Output(),
	}))(t)
	require.Len(t, r.Decision, 3)
	for _, d := range r.Decision {
		assert.Positive(t, d, "nothing is done before the timeout is over")
	}
	for what, d := range map[string]time.Duration{"start": r.Start, "floor": r.Floor, "reload": r.Reload, "order": r.Order, "status": r.Status, "plan": r.Plan, "page": r.Page, "again": r.Again} {
		assert.Positive(t, d, what)
	}
	for what, u := range map[string]Usage{"alone": r.Usage, "with the health check": r.Sweeps} {
		assert.Greater(t, u.RSS, int64(4<<20), what)
		assert.Positive(t, u.Updates, what)
	}
	assert.Greater(t, r.PageSize, 1000)
	assert.Positive(t, r.Checked)
}

func TestMeasureScaleRefusesTooSmall(t *testing.T) {
	for name, o := range map[string]ScaleOptions{
		"no sample":     {Nodes: 100, Rate: 1, Window: time.Second},
		"no update":     {Nodes: 100, Samples: 1, Window: time.Second},
		"no window":     {Nodes: 100, Samples: 1, Rate: 1},
		"no round":      {Nodes: 100, Samples: 1, Rate: 1, Window: time.Second, Sweep: time.Minute},
		"only targets":  {Nodes: 2, Samples: 1, Rate: 1, Window: time.Second},
		"too many BMCs": {Nodes: maxScale + 1, Samples: 1, Rate: 1, Window: time.Second},
	} {
		_, err := MeasureScale(t.Context(), o)
		assert.ErrorContains(t, err, "are needed", name)
	}
}

// A figure over its bound has the bound beside it; what was not measured is a dash.
func TestPrintScale(t *testing.T) {
	small := &ScaleResult{ScaleOptions: ScaleOptions{Nodes: 1000, Rate: 100}, Start: 11 * time.Second, Decision: []time.Duration{20 * time.Millisecond}}
	large := &ScaleResult{ScaleOptions: ScaleOptions{Nodes: 100_000, Rate: 100}, Start: 11 * time.Second, Decision: []time.Duration{70 * time.Millisecond}}
	var out bytes.Buffer
	require.NoError(t, PrintScale(&out, []*ScaleResult{small, large}))
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	assert.Contains(t, lines, "| what | 1000 Nodes | 100000 Nodes |")
	assert.Contains(t, lines, "| start to armed, all evaluated | 11.00 s | 11.00 s (bound 10.00 s) |")
	assert.Contains(t, lines, "| end of a timeout -> first byte at the BMC, median | 20.0 ms | 70.0 ms (bound 50.0 ms) |")
	assert.Contains(t, lines, "| resident with the health check | - | - |")
}
