package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/wire"
)

// TestTimelineSVG: the bar of a step begins and ends when the step did, inside the picture, and no text becomes markup.
func TestTimelineSVG(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	run := wire.RunRecord{
		ID: "r-1", Cluster: "prod", Node: "<n>&\x1b[2J", Result: wire.ResultRunning, Started: start,
		Steps: []wire.StepRecord{
			{Step: "PowerOff", Attempt: 1, Started: start, Ended: at(20)},
			{Step: "DeleteNode", Attempt: 1, Started: at(20), Ended: at(20), Course: []string{"</text><script>"}},
			{Step: "PowerOn", Attempt: 2, Started: at(20)},
		},
	}
	var out bytes.Buffer
	require.NoError(t, writeSVG(&out, []wire.RunRecord{run, run}, at(40)))
	type bar struct{ x, width int }
	var bars []bar
	var texts []string
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch v := token.(type) {
		case xml.StartElement:
			require.Contains(t, []string{"svg", "title", "style", "text", "rect"}, v.Name.Local)
			if v.Name.Local == "rect" {
				var b bar
				for _, a := range v.Attr {
					switch n, _ := strconv.Atoi(a.Value); a.Name.Local {
					case "x":
						b.x = n
					case "width":
						b.width = n
					}
				}
				bars = append(bars, b)
			}
		case xml.CharData:
			texts = append(texts, string(v))
		}
	}
	middle := (svgLeft + svgRight) / 2
	one := []bar{{svgLeft, middle - svgLeft}, {middle, 2}, {middle, svgRight - middle}}
	assert.Equal(t, append(one, one...), bars)
	for _, want := range []string{"2 runs", "3/6 PowerOn (2)", "</text><script>", "20s"} {
		assert.Contains(t, texts, want)
	}
}
