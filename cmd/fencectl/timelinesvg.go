package main

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"sync"
	"text/template"
	"time"

	"github.com/fenced/fenced/internal/wire"
)

// The picture has a row for each stay in a step. A course of what was done in the step stands below the name of the step.
const (
	svgWidth  = 900
	svgLeft   = 150 // where the bars begin
	svgRight  = 830 // where they end: the time that a step took stands behind its bar
	svgTop    = 78
	svgRow    = 44
	svgBottom = 10
)

// svgRun is one run in the picture.
type svgRun struct {
	Y                             int
	Title, Result, Trigger, Color string
	Steps                         []svgStep
}

// svgStep is one stay in a step. Its bar begins at X.
type svgStep struct {
	Y, X, Width, End          int
	Name, Took, Course, Color string
}

var svgTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("timeline").Funcs(template.FuncMap{
		"text": func(s string) string { return html.EscapeString(escapeControl(s)) },
		"add":  func(a, b int) int { return a + b },
	}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="13">
<title>{{text .Title}}</title>
<style>svg { background: #fff } text { fill: #222 } .run { font-size: 16px; font-weight: bold } .course { font-size: 11px; fill: #666 }</style>
{{range .Runs}}<text class="run" x="10" y="{{add .Y 24}}">{{text .Title}}</text>
<text x="10" y="{{add .Y 44}}" style="fill: {{.Color}}">{{text .Result}}</text>
<text class="course" x="10" y="{{add .Y 62}}">{{text .Trigger}}</text>
{{range .Steps}}<text x="10" y="{{add .Y 14}}">{{text .Name}}</text>
<rect x="{{.X}}" y="{{.Y}}" width="{{.Width}}" height="18" rx="3" fill="{{.Color}}"/>
<text x="{{add .End 6}}" y="{{add .Y 14}}">{{.Took}}</text>
<text class="course" x="10" y="{{add .Y 32}}">{{text .Course}}</text>
{{end}}{{end}}</svg>
`))
})

// stepColors are those of the six steps: red while the host is off, green while it comes back.
var stepColors = map[string]string{
	"PowerOff": "#c9402f", "DeleteNode": "#8e2a5b", "PowerOn": "#d98b1f", "AwaitNode": "#3a7d44", "RestoreNode": "#2f6f9f", "Reprovision": "#555",
}

// writeSVG draws runs, each by a scale of its own.
func writeSVG(out io.Writer, runs []wire.RunRecord, now time.Time) error {
	var picture struct {
		Title         string
		Width, Height int
		Runs          []svgRun
	}
	picture.Width = svgWidth
	for _, r := range runs {
		drawn := drawRun(r, picture.Height, now)
		picture.Runs = append(picture.Runs, drawn)
		picture.Height += svgTop + svgRow*len(drawn.Steps) + svgBottom
		picture.Title = drawn.Title
	}
	if len(runs) != 1 {
		picture.Title = fmt.Sprintf("%d runs", len(runs))
	}
	if err := svgTemplate().Execute(out, picture); err != nil {
		return fmt.Errorf("draw the timeline: %w", err)
	}
	return nil
}

func drawRun(r wire.RunRecord, y int, now time.Time) svgRun {
	took := cmp.Or(r.Ended, now).Sub(r.Started)
	drawn := svgRun{
		Y: y, Title: fmt.Sprintf("%s in %s: run %s", cmp.Or(r.Node, r.Machine), r.Cluster, r.ID), Color: "#8a6d00",
		Result: fmt.Sprintf("%s after %s, from %s", r.Result, span(took), clock(r.Started)), Trigger: r.Trigger,
	}
	switch resultColor(r.Result) {
	case green:
		drawn.Color = "#2a6b33"
	case red:
		drawn.Color = "#b02a1b"
	}
	x := func(t time.Time) int {
		return svgLeft + int(float64(svgRight-svgLeft)*min(1, max(0, float64(t.Sub(r.Started))/float64(max(took, 1)))))
	}
	for i, s := range r.Steps {
		end := cmp.Or(s.Ended, now)
		step := svgStep{
			Y: y + svgTop + i*svgRow, X: x(s.Started), Name: fmt.Sprintf("%d/6 %s", wire.StepNumber(s.Step), s.Step),
			Took: span(end.Sub(s.Started)), Course: courseOf(s), Color: cmp.Or(stepColors[s.Step], "#555"),
		}
		if s.Attempt > 1 {
			step.Name += fmt.Sprintf(" (%d)", s.Attempt)
		}
		step.Width = max(2, x(end)-step.X)
		step.End = step.X + step.Width
		drawn.Steps = append(drawn.Steps, step)
	}
	return drawn
}
