package page

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/fenced/fenced/internal/wire"
)

// names gives each zone, rack and Node an id for as long as it is there: an id holds nothing that others wrote.
type names struct {
	next int
	ids  map[string]string
	used map[string]string // since the last sweep
}

func (n *names) of(kind string, key ...string) string {
	k := kind + "\x00" + strings.Join(key, "\x00")
	id, known := n.ids[k]
	if !known {
		n.next++
		id = fmt.Sprintf("%s%d", kind, n.next)
	}
	n.used[k] = id
	return id
}

// sweep forgets what is gone.
func (n *names) sweep() { n.ids, n.used = n.used, make(map[string]string, len(n.used)) }

// cell is a Node in the map. It is comparable, so that only a cell that changed is drawn.
type cell struct {
	ID, Cluster, Node, Machine  string
	State, Letter, Checks, BMCs string
	Why, Now                    string
	Few                         bool
}

// Name is that of the Node, or of a Machine without one.
func (c cell) Name() string { return cmp.Or(c.Node, c.Machine) }

// Href is the page of the Node.
func (c cell) Href() string {
	if c.Node == "" {
		return place{"machine", c.Cluster, c.Machine}.address()
	}
	return place{"node", c.Cluster, c.Node}.address()
}

// draw draws a card, or a square where there are many. A square is put together here: for ten thousand, a template takes ten
// times as long.
func (c cell) draw() (string, error) {
	if c.Few {
		return draw("card", c)
	}
	return `<li id="` + c.ID + `"><a class="c ` + text(c.State) + `" id="` + c.ID + `-a" href="` + text(c.Href()) + `" aria-label="` + text(c.Label()) + `">` + text(c.Letter) + "</a></li>\n", nil
}

// maxWhy bounds what a cell tells of its reason: the page of the Node has it whole.
const maxWhy = 200

// Label is all that the cell tells.
func (c cell) Label() string {
	text := c.Name() + ": " + c.State
	for _, more := range []string{c.Now, c.Why, c.Checks, c.BMCs} {
		if more != "" {
			text += "; " + more
		}
	}
	return text
}

type legendRow struct {
	nodeState
	Count int
}

type legend struct {
	Rows        []legendRow
	Total, Left int // Left have no cell
}

// maxCells is how many Nodes have a cell in the map. With more, the most urgent have: a browser takes long to draw a hundred thousand.
const maxCells = 10_000

// mapOf draws the Nodes by cluster, zone and rack.
func mapOf(s *snapshot, ids *names, d *draft) *part {
	remarks := remarksOf(s.status)
	few := len(s.nodes.Nodes)+s.nodes.More <= fewNodes
	list := slices.Clone(s.nodes.Nodes)
	slices.SortStableFunc(list, func(a, b wire.Node) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Zone, b.Zone), strings.Compare(a.Rack, b.Rack))
	})
	zones := &part{id: "zones", open: `<div id="zones" class="zones` + ifText(few, " few") + `">`, shut: "</div>", parts: []*part{}}
	severalClusters := len(s.status.Clusters) > 1
	for i := 0; i < len(list); {
		end := i
		for end < len(list) && list[end].Cluster == list[i].Cluster && list[end].Zone == list[i].Zone {
			end++
		}
		zones.parts = append(zones.parts, zoneOf(list[i:end], ids, remarks, few, severalClusters, s.nodes.More > 0))
		i = end
	}
	ids.sweep()
	return &part{id: "s-map", open: `<section id="s-map" class="card" aria-labelledby="h-map">`, shut: `<p class="tip" id="tip" aria-hidden="true"></p></section>`,
		parts: []*part{d.leaf("map-head", "maphead", legendOf(&s.nodes)), zones}}
}

// legendOf counts the Nodes by state.
func legendOf(n *wire.Nodes) legend {
	l := legend{Total: len(n.Nodes) + n.More, Left: n.More}
	unknown := n.More + len(n.Nodes)
	for _, st := range byUrgency {
		if count := n.States[st.Name]; count > 0 {
			l.Rows = append(l.Rows, legendRow{st, count})
			unknown -= count
		}
	}
	if unknown > 0 {
		l.Rows = append(l.Rows, legendRow{stateOf(&wire.Node{}), unknown})
	}
	return l
}

// zoneOf draws the racks of a zone.
func zoneOf(list []wire.Node, ids *names, remarks map[target]remark, few, severalClusters, some bool) *part {
	first := &list[0]
	title := "Zone " + first.Zone
	if first.Zone == "" {
		title = "No zone"
	}
	if severalClusters {
		title = first.Cluster + ": " + title
	}
	id := ids.of("z", first.Cluster, first.Zone)
	z := &part{id: id, open: fmt.Sprintf(`<section class="zone" id="%s" aria-labelledby="%s-h"><h3 id="%s-h">%s</h3><div class="racks">`, id, id, id, text(title)), shut: "</div></section>"}
	for i := 0; i < len(list); {
		end := i
		for end < len(list) && list[end].Rack == list[i].Rack {
			end++
		}
		rid := ids.of("r", first.Cluster, first.Zone, list[i].Rack)
		name := "Rack " + list[i].Rack
		if list[i].Rack == "" {
			name = "No rack"
		}
		count := fmt.Sprintf(` <span class="count">(%d)</span>`, end-i)
		if some { // others of the rack may have no cell
			count = ""
		}
		r := &part{id: rid, open: fmt.Sprintf(`<div class="rack" id="%s"><h4 id="%s-h">%s%s</h4><ul class="cells" aria-labelledby="%s-h">`,
			rid, rid, text(name), count, rid), shut: "</ul></div>"}
		for j := i; j < end; j++ {
			c := cellOf(&list[j], ids, remarks, few)
			r.parts = append(r.parts, &part{id: c.ID, model: c, draw: c.draw})
		}
		z.parts = append(z.parts, r)
		i = end
	}
	return z
}

func cellOf(n *wire.Node, ids *names, remarks map[target]remark, few bool) cell {
	st := stateOf(n)
	c := cell{ID: ids.of("n", n.Cluster, n.Node, n.Machine), Cluster: n.Cluster, Node: n.Node, Machine: n.Machine, State: st.Name, Letter: st.Letter,
		Checks: strings.Join(n.Checks, ", "), BMCs: strings.Join(n.BMCs, ", "), Few: few}
	w := remarks[target{n.Cluster, n.Name()}]
	c.Now, c.Why = w.now, w.text
	if c.Why == "" && n.Reason != "" && n.Fenceable == wire.FenceableNo {
		c.Why = n.Reason + ": " + n.Message
	}
	if r := []rune(c.Why); len(r) > maxWhy {
		c.Why = string(r[:maxWhy]) + " ..."
	}
	return c
}

// target names what a remark is about: the Node, or the Machine without one.
type target struct{ cluster, name string }

// remark is what the status tells of a target: the step of its run, and the reason.
type remark struct{ now, text string }

// remarksOf collects it, the most urgent last, because that is kept.
func remarksOf(st wire.Status) map[target]remark {
	all := map[target]remark{}
	for _, c := range st.Clusters {
		for _, t := range c.Deviating {
			all[target{c.Name, cmp.Or(t.Node, t.Machine)}] = remark{text: join(t.Reason, t.Message)}
		}
		for _, h := range c.Holds {
			all[target{c.Name, cmp.Or(h.Node, h.Machine)}] = remark{text: join("held by "+h.By, h.Reason)}
		}
	}
	for _, b := range st.Blocked {
		all[target{b.Cluster, cmp.Or(b.Node, b.Machine)}] = remark{text: join(b.Reason, b.Message)}
	}
	for _, r := range st.Runs {
		now := ""
		if n := wire.StepNumber(r.Step); n > 0 {
			now = fmt.Sprintf("step %d of 6, %s", n, r.Step)
		}
		all[target{r.Cluster, cmp.Or(r.Node, r.Machine)}] = remark{now: now, text: join(r.Reason, r.Note)}
	}
	return all
}

func join(code, sentence string) string {
	if code == "" || sentence == "" {
		return code + sentence
	}
	return code + ": " + sentence
}

// text is what others wrote, within an element that is put together here.
func text(s string) string { return visible(html.EscapeString(s)) }

func ifText(when bool, s string) string {
	if when {
		return s
	}
	return ""
}
