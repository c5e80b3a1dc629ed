package docs_test

import (
	"os"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
)

// drawnBox is a box in the picture, with its title and what is in it.
type drawnBox struct {
	X, Y, Width, Height int
	Class, Title        string
	Lines               []string
}

// arrow is one between two boxes, with what goes along it.
type arrow struct {
	X1, Y1, X2, Y2 int
	TextX, TextY   int
	Lines          []string
}

// The cluster is on the left, what fenced reaches without it on the right.
var (
	boxes = []drawnBox{
		{X: 20, Y: 20, Width: 380, Height: 150, Class: "cluster", Title: "Kubernetes cluster: its API", Lines: []string{
			"health checks of OpenShift, Cluster API, medik8s", "Machines, BareMetalHosts", "Nodes, their Leases, pods, volumes",
		}},
		{X: 20, Y: 330, Width: 380, Height: 110, Class: "cluster", Title: "Hosts", Lines: []string{
			"worker-1: hangs", "worker-2, worker-3: run", "nothing of fenced is on them",
		}},
		{X: 600, Y: 20, Width: 280, Height: 150, Class: "fenced", Title: "A host beside the cluster", Lines: []string{
			"fenced: a systemd service", "its state and its audit log", "fencectl, for people",
		}},
		{X: 600, Y: 330, Width: 280, Height: 110, Class: "bmc", Title: "BMC of each host, PDUs", Lines: []string{
			"powered apart from the host", "on the management network",
		}},
	}
	arrows = []arrow{
		{X1: 600, Y1: 60, X2: 400, Y2: 60, TextX: 500, TextY: 50, Lines: []string{"watches all of these"}},
		{X1: 600, Y1: 130, X2: 400, Y2: 130, TextX: 500, TextY: 86, Lines: []string{"saves and deletes the Node,", "once its host is proven off;", "restores it on the new Node"}},
		{X1: 740, Y1: 170, X2: 740, Y2: 330, TextX: 740, TextY: 226, Lines: []string{"IPMI, Redfish: reads the identity, sends Off,", "reads Off twice, sends On"}},
		{X1: 600, Y1: 385, X2: 400, Y2: 385, TextX: 500, TextY: 374, Lines: []string{"switches its power"}},
		{X1: 210, Y1: 330, X2: 210, Y2: 170, TextX: 210, TextY: 226, Lines: []string{"kubelet: its Lease stops;", "after the boot it registers a new Node"}},
	}
)

var whereTemplate = template.Must(template.New("where").Funcs(template.FuncMap{
	"add": func(a ...int) (sum int) {
		for _, n := range a {
			sum += n
		}
		return sum
	},
	"rows": func(i int) int { return 18 * i },
}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 460" font-family="sans-serif" font-size="13">
<title>fenced stands beside the cluster, and reaches the BMCs without it</title>
<defs><marker id="end" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z" fill="#666"/></marker></defs>
<style>svg { background: #fff } text { fill: #222 } .title { font-weight: bold; font-size: 15px } rect { stroke: #888 } .cluster { fill: #eef3f8 } .fenced { fill: #ffe3c2 } .bmc { fill: #f3f3f0 } line { stroke: #666; stroke-width: 1.5 } .way { text-anchor: middle; fill: #444; font-size: 12px; paint-order: stroke; stroke: #fff; stroke-width: 5px }</style>
{{range .Places}}<rect class="{{.Class}}" x="{{.X}}" y="{{.Y}}" width="{{.Width}}" height="{{.Height}}" rx="6"/>
<text class="title" x="{{add .X 14}}" y="{{add .Y 28}}">{{.Title}}</text>
{{$p := .}}{{range $i, $line := .Lines}}<text x="{{add $p.X 14}}" y="{{add $p.Y 54 (rows $i)}}">{{$line}}</text>
{{end}}{{end}}{{range .Ways}}<line x1="{{.X1}}" y1="{{.Y1}}" x2="{{.X2}}" y2="{{.Y2}}" marker-end="url(#end)"/>
{{$w := .}}{{range $i, $line := .Lines}}<text class="way" x="{{$w.TextX}}" y="{{add $w.TextY (rows $i)}}">{{$line}}</text>
{{end}}{{end}}</svg>
`))

// TestWhereFencedStands draws where.svg, which the README shows. make golden writes it.
func TestWhereFencedStands(t *testing.T) {
	var drawn strings.Builder
	require.NoError(t, whereTemplate.Execute(&drawn, map[string]any{"Places": boxes, "Ways": arrows}))
	if *update {
		require.NoError(t, os.WriteFile("where.svg", []byte(drawn.String()), 0o644))
	}
	assert.True(t, drawn.String() == string(must.Do(os.ReadFile("where.svg"))(t)), "where.svg is old; run make golden")
}
