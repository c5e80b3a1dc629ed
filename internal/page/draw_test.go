package page

import (
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// pages are the addresses below the path, one of each kind.
var pages = []string{"", "node?node=worker-3&cluster=prod", "node?node=worker-18", "run?id=mi42k0z3-4f9a1c", "run?id=mi42k0z7-4f9a1c", "run?id=mi3zzzz1-000001"}

func elements(n *html.Node, visit func(*html.Node)) {
	if n.Type == html.ElementNode {
		visit(n)
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		elements(c, visit)
	}
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

var ownLinks = regexp.MustCompile(`^(\./(#[a-z-]+)?|#[a-z-]+|(node|run)\?[A-Za-z0-9%._~&=+-]+|style\.css|icon\.svg)$`)

// sound checks what each page owes: no script but its own, no style and no handler in an attribute, links to itself alone,
// ids that are unique and that exist, tables and regions with names.
func sound(t *testing.T, text string, file bool) {
	t.Helper()
	doc := must.Do(html.Parse(strings.NewReader(text)))(t)
	ids, headings := map[string]bool{}, 0
	elements(doc, func(n *html.Node) {
		if id := attribute(n, "id"); id != "" {
			assert.False(t, ids[id], "the id %s is there twice", id)
			ids[id] = true
		}
	})
	elements(doc, func(n *html.Node) {
		for _, a := range n.Attr {
			assert.False(t, strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "srcset" || a.Key == "action", "%s has the attribute %s", n.Data, a.Key)
		}
		for _, of := range []string{"aria-labelledby", "aria-describedby"} {
			if id := attribute(n, of); id != "" {
				assert.True(t, ids[id], "%s names %s, which is not there", of, id)
			}
		}
		switch n.Data {
		case "script":
			assert.False(t, file, "a file has no script")
			assert.Equal(t, "page.js", attribute(n, "src"))
			assert.Nil(t, n.FirstChild)
		case "a", "link":
			href := attribute(n, "href")
			assert.True(t, ownLinks.MatchString(href) || href == "#main", "a link to %q", href)
			assert.True(t, !file || href == "#main", "a file links to %q", href)
		case "img", "iframe", "object", "embed", "form", "base", "audio", "video", "source", "frame", "use", "image":
			t.Errorf("the page has <%s>", n.Data)
		case "h1":
			headings++
		case "th":
			assert.Contains(t, []string{"row", "col"}, attribute(n, "scope"))
		case "table":
			assert.Equal(t, "group", attribute(n.Parent, "role"))
			assert.NotEmpty(t, attribute(n.Parent, "aria-label")+attribute(n.Parent, "aria-labelledby"))
		case "svg":
			assert.Equal(t, "true", attribute(n, "aria-hidden"), "its words stand beside it")
		}
	})
	assert.Equal(t, 1, headings, "one h1")
	assert.Equal(t, -1, strings.IndexFunc(text, func(r rune) bool { return r != '\n' && wire.Unprintable(r) }), "something is unprintable")
}

// TestPagesAreSound looks at each kind of page, and at a Node that nobody knows.
func TestPagesAreSound(t *testing.T) {
	s, _ := pageOf(t, scene(time.Now()), "")
	for _, path := range append(pages, "node?node=nobody") {
		t.Run(path, func(t *testing.T) { sound(t, get(s, s.path+path, nil).Body.String(), false) })
	}
}

// TestPagesOfHostileText: every text is one that somebody wrote to do harm.
func TestPagesOfHostileText(t *testing.T) {
	now := time.Now()
	for name, text := range map[string]string{"script": hostile, "long": strings.Repeat("<b>&\"'", 700), "template": "{{.}} ${x} </template></svg></title><!--", "empty": ""} {
		t.Run(name, func(t *testing.T) {
			d := scene(now)
			snap := &snapshot{at: now, status: d.status, nodes: urgent(d.nodes), bmcs: d.bmcs, runs: map[string]wire.RunRecord{d.runs[0].ID: d.runs[0]}}
			read := nodeRead{explain: d.explain, timeline: wire.Timeline{Runs: d.runs, Notes: d.notes, Blocked: d.blocked}, bmcs: d.bmcs, node: &d.nodes[2], holds: d.status.Clusters[0].Holds}
			for range fewNodes { // many are drawn without words
				snap.nodes.Nodes = append(snap.nodes.Nodes, d.nodes[0])
			}
			if name == "long" {
				snap.nodes = urgent(d.nodes)
			}
			for _, v := range []any{snap, &read} {
				overwrite(reflect.ValueOf(v).Elem(), text)
			}
			for _, draw := range []func() (*part, error){
				func() (*part, error) { return overview(snap, newHub(nil, "", nil).ids, now) },
				func() (*part, error) { return nodePage(read, now) },
				func() (*part, error) {
					return runPage(read.timeline, &Audit{Entries: []audit.Entry{{Seq: 7, Type: text, Step: text, Actor: text, Action: text, Reason: text, Message: text, Why: text}}, Problem: text}, now)
				},
			} {
				p := must.Do(draw())(t)
				require.NoError(t, p.follow(nil, 1))
				var b strings.Builder
				p.write(&b)
				text := b.String()
				assert.NotContains(t, text, "<script")
				assert.NotContains(t, text, "<b>&")
				if name == "script" { // the page of a run has no heading of its own element, and an id twice where a run has an id of space
					assert.NotContains(t, text, "\u202e")
				}
				doc := must.Do(html.Parse(strings.NewReader(text)))(t)
				elements(doc, func(n *html.Node) {
					assert.NotContains(t, []string{"script", "b>", "template", "title"}, n.Data)
					for _, a := range n.Attr {
						assert.NotEqual(t, "onmouseover", a.Key)
					}
					if href := attribute(n, "href"); n.Data == "a" {
						assert.Regexp(t, `^(\./|#|node\?|run\?)`, href)
					}
				})
			}
		})
	}
}

// overwrite sets each text below v, wherever it stands, except for states: those are words of the program.
func overwrite(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(text)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			overwrite(v.Elem(), text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			overwrite(v.Index(i), text)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			f := v.Field(i)
			if !f.CanSet() { // of this package, as a snapshot has
				f = reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
			}
			overwrite(f, text)
		}
	}
}

// TestOverviewShows: what an operator looks for stands there.
func TestOverviewShows(t *testing.T) {
	s, _ := pageOf(t, scene(time.Now()), "")
	text := get(s, s.path, nil).Body.String()
	for what, want := range map[string]string{
		"a mode": ">evaluate<", "another": ">observe<", "armed": ">armed<", "not armed": ">not armed<", "owner": "this fenced", "view": "94s old", "problem": "the view of the cluster is 94s old",
		"hint": "Hint: write isolation", "version of a line and its next": "find the common cause: fencectl plan --cluster prod", "a run": "run?id=mi42k0z3-4f9a1c", "its bar": "<progress", "first read": "read 1 of Off",
		"second read": "read 2 of Off", "a held run's next": "fencectl retry worker-7 --reason WHY", "its error": "the BMC refuses user fenced", "blocked": "1 run is open, and guards.maxInFlight is 1",
		"what ends it": "may pass: fenced tries again by itself", "next": "fencectl explain worker-9", "check": "15 of 20 healthy, 5 not, room for 3 more", "closed": "ShortCircuit", "limit": "at least 51% must be healthy",
		"bmc": "ipmi://192.0.2.28", "why not": "dial udp 192.0.2.28:623", "hold": "held by bert (uid 1001)", "request": "asked by a NodeHealthCheck", "recent": "mi3zzzz1-000001", "zone": "Zone dc-a", "rack": "Rack r3", "deviating": "Ready is Unknown for 40s",
	} {
		assert.Contains(t, text, want, what)
	}
	for _, st := range byUrgency {
		assert.Contains(t, text, `<span class="c `+st.Name+`"`, "the legend and a cell show %s", st.Name)
	}
}

// TestNodeAndRunShow: the same of the pages of a Node and of a run.
func TestNodeAndRunShow(t *testing.T) {
	s, _ := pageOf(t, scene(time.Now()), "")
	for path, wants := range map[string][]string{
		"node?node=worker-3":     {"RunsInFlight", "below 1", "guards.maxInFlight", ">forbids<", ">passes<", ">not checked yet<", ">waived<", "4c4c4544-0042", "PowerEdge R650", "CipherZero", "hosts.d/workers.yaml:7", "strict assurance", "Zone", "dc-a", "ticket 4711", "4 times", "read 2 of Off"},
		"node?node=worker-15":    {"Held by bert (uid 1001)", "new disk"},
		"node?node=worker-9":     {"Blocked: RunsInFlight", "next try"},
		"run?id=mi42k0z3-4f9a1c": {"no heartbeat for 15 s", "Ready is Unknown for 5m0s", "1. PowerOff", "fenced itself", "fencectl timeline mi42k0z3-4f9a1c -o html", ">4711<", "the Node was deleted"},
		"run?id=mi42k0z7-4f9a1c": {"anna (uid 1000)", "goal not reached", "PowerOffFailed", "BMCAuth"},
		"run?id=mi3zzzz1-000001": {"not needed", ">Done<", "after 4m10s"},
	} {
		text := get(s, s.path+path, nil).Body.String()
		for _, want := range wants {
			assert.Contains(t, text, want, path)
		}
	}
}

// TestOnlyOneCluster: with a cluster, nothing of another is shown.
func TestOnlyOneCluster(t *testing.T) {
	s, _ := pageOf(t, scene(time.Now()), "edge")
	text := get(s, s.path, nil).Body.String()
	assert.Contains(t, text, "edge")
	assert.NotContains(t, text, "worker-18")
	assert.NotContains(t, text, "prod")
	for _, path := range []string{"run?id=mi42k0z3-4f9a1c", "node?cluster=prod&node=worker-3"} {
		w := get(s, s.path+path, nil)
		assert.Equal(t, http.StatusNotFound, w.Code, path)
		assert.NotContains(t, w.Body.String(), "Ready is Unknown", path)
	}
}

// TestUnknownStateIsShown: a daemon that is newer may have one more.
func TestUnknownStateIsShown(t *testing.T) {
	d := scene(time.Now())
	d.nodes[0].State = "Frozen"
	s, _ := pageOf(t, d, "")
	assert.Contains(t, get(s, s.path, nil).Body.String(), `class="c Unknown"`)
}

// TestTimelineFile: a post-mortem is one file, without a script or a link, that shows what the page shows.
func TestTimelineFile(t *testing.T) {
	d := scene(noon)
	for _, runs := range [][]wire.RunRecord{d.runs[:1], d.runs, nil} {
		var b strings.Builder
		require.NoError(t, WriteTimeline(&b, "worker-3", wire.Timeline{Runs: runs, Notes: d.notes, Blocked: d.blocked}, &Audit{Entries: []audit.Entry{{Seq: 4711, Message: "the Node was deleted"}}}, noon))
		text := b.String()
		sound(t, text, true)
		assert.NotContains(t, text, "http:")
		assert.NotContains(t, text, "https:")
		assert.NotContains(t, text, "url(")
		assert.Contains(t, text, "ticket 4711")
		assert.Contains(t, text, "the Node was deleted")
		if len(runs) > 0 {
			assert.Contains(t, text, "read Off twice")
		}
	}
}

// many is a cluster of n Nodes.
func many(n int) *daemon {
	d := scene(noon)
	d.nodes = nil
	for i := range n {
		d.nodes = append(d.nodes, wire.Node{Cluster: "prod", Node: fmt.Sprintf("node-%05d", i), Zone: fmt.Sprintf("z%d", i/2500), Rack: fmt.Sprintf("r%03d", i/40), State: wire.NodeHealthy,
			Checks: []string{"MachineHealthCheck ns/workers"}, BMCs: []string{fmt.Sprintf("ipmi://10.0.%d.%d", i/250, i%250)}, Fenceable: wire.FenceableYes})
	}
	return d
}

// TestTenThousandNodes: one that changes is one cell, its legend and the figures, and nothing else is sent.
func TestTenThousandNodes(t *testing.T) {
	d := many(10_000)
	s, _ := pageOf(t, d, "")
	w := get(s, s.path, nil)
	require.Equal(t, http.StatusOK, w.Code)
	sound(t, w.Body.String(), false)
	first := s.hub.views[place{kind: "overview"}]
	rev := first.rev
	d.change(func() { d.nodes[4711].State = wire.NodeUnhealthy })
	s.hub.snap.at = time.Time{} // as if it were old
	get(s, s.path, nil)
	var changed []string
	bytes := 0
	list, _, _ := s.hub.since(place{kind: "overview"}, rev)
	for _, c := range list {
		bytes += len(c.HTML)
		switch c.ID {
		case "s-runs", "link": // an open step goes on, and the time of the read
		default:
			changed = append(changed, c.ID)
		}
	}
	assert.Len(t, changed, 3)
	assert.Contains(t, changed, "s-head")
	assert.Contains(t, changed, "map-head")
	assert.Less(t, bytes, 16<<10)
}

// Of very many Nodes the most urgent have a cell, the page says how many have none, and counts them all.
func TestMostUrgentNodesHaveACell(t *testing.T) {
	d := many(maxCells + 3)
	d.nodes[maxCells+1].State = wire.NodeUnhealthy
	main := must.Do(overview(&snapshot{at: noon, status: d.status, nodes: urgent(d.nodes)}, newHub(nil, "", nil).ids, noon))(t)
	require.NoError(t, main.follow(nil, 1))
	var b strings.Builder
	main.write(&b)
	text := b.String()
	assert.Equal(t, maxCells, strings.Count(text, "<a class=\"c "))
	assert.Contains(t, text, fmt.Sprintf("node-%05d: %s", maxCells+1, wire.NodeUnhealthy))
	assert.NotContains(t, text, fmt.Sprintf("node-%05d: %s", maxCells, wire.NodeHealthy))
	assert.Contains(t, text, "<p class=\"dim\">3 Nodes have no cell")
	assert.NotRegexp(t, `>Rack [^<]*<span class="count">`, text, "nobody counts what has no cell")
	assert.Contains(t, text, fmt.Sprintf("Nodes <span class=\"count\">(%d)</span>", maxCells+3))
	assert.Contains(t, text, fmt.Sprintf("%d %s", maxCells+2, wire.NodeHealthy))
}

func urgent(list []wire.Node) wire.Nodes { return wire.Nodes{Nodes: list}.MostUrgent(maxCells) }

// BenchmarkOverview draws ten thousand Nodes: the first time, and when one of them changed.
func BenchmarkOverview(b *testing.B) {
	d := many(10_000)
	for name, again := range map[string]bool{"first": false, "again": true} {
		b.Run(name, func(b *testing.B) {
			ids := newHub(nil, "", nil).ids
			var old *part
			for i := 0; b.Loop(); i++ {
				d.nodes[i%len(d.nodes)].State = wire.NodeUnhealthy
				p, err := overview(&snapshot{at: noon, status: d.status, nodes: urgent(d.nodes)}, ids, noon)
				if err == nil {
					err = p.follow(old, uint64(i+1))
				}
				if err != nil {
					b.Fatal(err)
				}
				if again {
					old = p
				}
			}
		})
	}
}

// TestStepThatStopsAsOrdered: step 2 has isolated the Node of a run that leaves its host off. That is its goal.
func TestStepThatStopsAsOrdered(t *testing.T) {
	for note, class := range map[string]string{
		"OperatorOff: fenced with --off-only; unfence brings it back":                "done",
		"FoundOff: the host was off before fenced came; unfence brings it back":      "done",
		"ConfirmedOff: confirmed off by anna; unfence brings it back, or a new boot": "done",
		"APIUnreachable: the API server did not answer":                              "late",
	} {
		v := viewOf(wire.RunRecord{Started: noon, Result: wire.ResultHeld, Steps: []wire.StepRecord{{Step: "DeleteNode", Attempt: 1, Started: noon, Ended: noon.Add(time.Second), Note: note}}}, noon)
		assert.Equal(t, class, v.Bars[1].Class, note)
		assert.Equal(t, class == "done", v.Stays[0].Class == "ok", note)
	}
}

// TestTwoDevicesOfALevel: a host with two power supplies has a device for each, on one power level.
func TestTwoDevicesOfALevel(t *testing.T) {
	d := scene(noon)
	d.bmcs = append(d.bmcs, d.bmcs[1])
	s, _ := pageOf(t, d, "")
	text := get(s, s.path+"node?node=worker-3", nil).Body.String()
	assert.Equal(t, 2, strings.Count(text, "CipherZero"))
	sound(t, text, false)
}

func leaf(id, html string) *part { return &part{id: id, html: html} }

func box(id string, parts ...*part) *part {
	return &part{id: id, open: "<" + id + ">", shut: "</" + id + ">", parts: parts}
}

// TestChangesAreSmall: what is sent is the smallest element that changed.
func TestChangesAreSmall(t *testing.T) {
	page := func(a, b string, more ...*part) *part {
		return box("m", leaf("a", a), box("g", append([]*part{leaf("b", b)}, more...)...))
	}
	for name, c := range map[string]struct {
		old, now *part
		want     []string
	}{
		"nothing":        {page("1", "2"), page("1", "2"), nil},
		"a leaf":         {page("1", "2"), page("9", "2"), []string{"a=9"}},
		"a leaf in one":  {page("1", "2"), page("1", "9"), []string{"b=9"}},
		"both":           {page("1", "2"), page("8", "9"), []string{"a=8", "b=9"}},
		"one more":       {page("1", "2"), page("1", "2", leaf("c", "3")), []string{"g=<g>23</g>"}},
		"one less":       {page("1", "2", leaf("c", "3")), page("1", "2"), []string{"g=<g>2</g>"}},
		"another order":  {page("1", "2", leaf("c", "3"), leaf("d", "4")), page("1", "2", leaf("d", "4"), leaf("c", "3")), []string{"g=<g>243</g>"}},
		"all was other":  {leaf("m", "x"), page("1", "2"), []string{"m=<m>1<g>2</g></m>"}},
		"a leaf is more": {box("m", leaf("a", "1")), box("m", box("a", leaf("b", "1"))), []string{"a=<a>1</a>"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, c.old.follow(nil, 1))
			require.NoError(t, c.now.follow(c.old, 2))
			var got []string
			for _, change := range c.now.since(1, nil) {
				got = append(got, change.ID+"="+change.HTML)
			}
			assert.Equal(t, c.want, got)
			assert.Empty(t, c.now.since(2, nil))
			var whole strings.Builder
			c.now.write(&whole)
			all := c.now.since(0, nil)
			assert.Equal(t, []change{{"m", whole.String()}}, all, "a browser that has nothing is sent all")
		})
	}
}

// TestOnlyAChangedCellIsDrawn: ten thousand cells that are as before cost a comparison each.
func TestOnlyAChangedCellIsDrawn(t *testing.T) {
	drawn := 0
	of := func(model any) *part {
		return &part{id: "n1", model: model, draw: func() (string, error) { drawn++; return "x", nil }}
	}
	first, same, other := of(cell{Node: "a"}), of(cell{Node: "a"}), of(cell{Node: "a", State: "Held"})
	require.NoError(t, first.follow(nil, 1))
	require.NoError(t, same.follow(first, 2))
	assert.Equal(t, 1, drawn)
	assert.Equal(t, "x", same.html)
	require.NoError(t, other.follow(same, 3))
	assert.Equal(t, 2, drawn)
}

// TestIdsAreForgotten: names that come and go take no memory, and an id is never that of two.
func TestIdsAreForgotten(t *testing.T) {
	n := &names{ids: map[string]string{}, used: map[string]string{}}
	a := n.of("n", "prod", "a")
	n.sweep()
	assert.Equal(t, a, n.of("n", "prod", "a"))
	assert.NotEqual(t, a, n.of("n", "prod", "b"))
	assert.NotEqual(t, n.of("n", "x", "y\x00z"), n.of("n", "x\x00y", "z2"))
	n.sweep()
	n.sweep()
	assert.Empty(t, n.ids)
	assert.NotEqual(t, a, n.of("n", "prod", "a"))
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// hostile is text that a name, a message or a label may hold.
const hostile = "<script>alert(1)</script>\" onmouseover='x' javascript:x \u202etxt\x1b[2J\u200b"

// TestFileOfHostileText: a file has no script, fetches nothing, and shows what no reader would see.
func TestFileOfHostileText(t *testing.T) {
	var b strings.Builder
	body := Parse(`<section class="card"><h2 title="{{.}}">{{.}}</h2></section>`)
	require.NoError(t, Write(&b, File{Title: hostile, Made: noon, Foot: hostile}, body, hostile))
	text := b.String()
	assert.NotContains(t, text, "<script")
	assert.NotContains(t, text, "\u202e")
	assert.NotContains(t, text, "\x1b")
	assert.NotContains(t, text, "\u200b")
	assert.NotContains(t, text, `src=`)
	assert.NotContains(t, text, `href="h`)
	assert.Contains(t, text, `\u202etxt\x1b[2J\u200b`)
	assert.Contains(t, text, "default-src 'none'")
	assert.Contains(t, text, "2026-01-02 12:00:00 UTC")
}
