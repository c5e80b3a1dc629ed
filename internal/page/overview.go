package page

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// snapshot is what was read of the daemon at one moment.
type snapshot struct {
	at     time.Time
	status wire.Status
	nodes  wire.Nodes
	bmcs   []wire.BMC
	runs   map[string]wire.RunRecord // those of the open runs that are shown step by step
}

// The lists of the overview end somewhere; the verbs of fencectl have all.
const (
	maxRuns  = 24
	maxRows  = 200
	fewNodes = 60 // so many have a card each in the map, with words
)

// overview draws the first page.
func overview(s *snapshot, ids *names, now time.Time) (*part, error) {
	d := draft{}
	main := &part{id: "main", parts: []*part{
		d.leaf("s-head", "overviewhead", figuresOf(s)),
		column("left", "w8", d.leaf("s-attention", "attention", attentionOf(s.status)), d.leaf("s-runs", "openruns", openRuns(s, now))),
		column("right", "w4", d.leaf("s-clusters", "clusters", clustersOf(s.status)), d.leaf("s-checks", "checks", checksOf(s.status))),
		mapOf(s, ids, &d),
		d.leaf("s-blocked", "blocked", rowsOf(s.status.Blocked, s.status.BlockedMore)),
		d.leaf("s-requests", "requests", requestsOf(s.status)),
		d.leaf("s-bmcs", "bmcs", bmcsOf(s)),
		d.leaf("s-holds", "holds", holdsOf(s.status)),
		d.leaf("s-recent", "recent", s.status),
	}}
	return main, d.err
}

// column is a part of the width, with parts below each other.
func column(id, width string, parts ...*part) *part {
	return &part{id: id, open: `<div id="` + id + `" class="column ` + width + `">`, parts: parts, shut: "</div>"}
}

// draft draws leaves, and keeps the first error.
type draft struct{ err error }

func (d *draft) leaf(id, name string, data any) *part {
	html, err := draw(name, data)
	if err != nil && d.err == nil {
		d.err = err
	}
	return &part{id: id, html: html}
}

// draw executes a template of this package.
func draw(name string, data any) (string, error) {
	var b bytes.Buffer
	if err := shared().ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("draw %s: %w", name, err)
	}
	return visible(b.String()), nil
}

// rows are those of a table that are shown, and how many more there are.
type rows[T any] struct {
	Rows []T
	More int
}

// rowsOf are the first of a list, which itself lacks some more.
func rowsOf[T any](list []T, more int) rows[T] {
	shown := list[:min(len(list), maxRows)]
	return rows[T]{shown, more + len(list) - len(shown)}
}

// figure is a number to see at a glance.
type figure struct {
	Name, Href string
	Count      int
	Of         int // of so many, if not 0
	Tag        string
}

func figuresOf(s *snapshot) []figure {
	closed, checks := 0, 0
	for _, c := range s.status.Clusters {
		checks += len(c.Checks) + c.ChecksMore
		for _, k := range c.Checks {
			if !k.Allowed {
				closed++
			}
		}
	}
	bad := func(n int, tag string) string {
		if n == 0 {
			return ""
		}
		return tag
	}
	look, runs, blocked := len(s.status.Degradations()), len(s.status.Runs), len(s.status.Blocked)+s.status.BlockedMore
	return []figure{
		{"Needs attention", "#s-attention", look, 0, bad(look, "warn")},
		{"Open runs", "#s-runs", runs, 0, bad(runs, "busy")},
		{"Blocked", "#s-blocked", blocked, 0, bad(blocked, "bad")},
		{"Healthy Nodes", "#s-map", s.nodes.States[wire.NodeHealthy], len(s.nodes.Nodes) + s.nodes.More, ""},
		{"Checks that allow nothing", "#s-checks", closed, checks, bad(closed, "bad")},
		{"BMCs not dependable", "#s-bmcs", s.status.BMCs.NotDependable, s.status.BMCs.Total, bad(s.status.BMCs.NotDependable, "warn")},
	}
}

type attentionView struct {
	rows[wire.Degradation]
	Say string // for a screen reader, when it changes
}

func attentionOf(st wire.Status) attentionView {
	lines := st.Degradations()
	v := attentionView{rowsOf(lines, 0), "Nothing needs attention."}
	if n := len(lines); n > 0 {
		v.Say = plural(n, "thing") + " to look at."
	}
	return v
}

type clusterView struct {
	wire.ClusterStatus
	Says []sentence
}

// sentence is one about a cluster, and what comes next.
type sentence struct{ Class, Text, Next string }

type clustersView struct {
	Paused string
	Rows   []clusterView
}

// clustersOf repeats no sentence of the degraded lines except why nothing is decided, which belongs to the cluster.
func clustersOf(st wire.Status) clustersView {
	var v clustersView
	if st.Paused {
		v.Paused = cmp.Or(st.PausedReason, "paused")
	}
	for i := range st.Clusters {
		c := clusterView{ClusterStatus: st.Clusters[i]}
		say := func(class, text, next string) {
			if text != "" {
				c.Says = append(c.Says, sentence{class, text, next})
			}
		}
		if c.Paused {
			say("warn", "Paused: "+c.PausedReason, c.PausedNext)
		}
		say("bad", c.Problem, c.Next)
		say("bad", c.FilesRefused, wire.CorrectFiles)
		say("warn", c.Aside, "")
		say("hint", c.Hint, "")
		v.Rows = append(v.Rows, c)
	}
	return v
}

// ViewAge is how old the view of the cluster is, roughly: a number that changes at each look would draw the eye.
func (c clusterView) ViewAge() string {
	if c.ViewAgeSeconds < 3 {
		return "now"
	}
	return Span(time.Duration(c.ViewAgeSeconds)*time.Second) + " old"
}

type openRunsView struct {
	Runs []runView
	More int
	Say  string
}

func openRuns(s *snapshot, now time.Time) openRunsView {
	list := s.status.Runs
	v := openRunsView{More: max(0, len(list)-maxRuns)}
	var say []string
	for _, r := range list[:min(len(list), maxRuns)] {
		rec, known := s.runs[r.ID]
		if !known { // it began since
			rec = wire.RunRecord{ID: r.ID, Cluster: r.Cluster, Node: r.Node, Machine: r.Machine, Started: r.Started, Result: wire.ResultOf(remediate.Step(r.Step)), Reason: r.Reason, Note: r.Note, Deadline: r.Deadline}
		}
		one := viewOf(rec, now)
		one.Next, one.NextTry = r.Next, r.NextTry
		v.Runs = append(v.Runs, one)
		if len(say) < 3 {
			say = append(say, fmt.Sprintf("%s: %s", cmp.Or(r.Node, r.Machine), r.Step))
		}
	}
	v.Say = strings.Join(say, ", ")
	if len(list) == 0 {
		v.Say = "No run is open."
	}
	return v
}

type checkView struct {
	wire.CheckStatus
	Cluster, Title  string
	Tag, Word       string
	Room, Unhealthy int
	// Of the bar, in thousandths: the room for more unhealthy ones, the unhealthy. What is before is healthy and must stay so.
	RoomX, RoomWidth, BadX, BadWidth int
}

func checksOf(st wire.Status) rows[checkView] {
	var list []checkView
	more := 0
	for _, c := range st.Clusters {
		for _, k := range c.Checks {
			list = append(list, checkOf(c.Name, k))
		}
		more += c.ChecksMore
	}
	return rowsOf(list, more)
}

func checkOf(cluster string, k wire.CheckStatus) checkView {
	v := checkView{CheckStatus: k, Cluster: cluster, Title: strings.TrimPrefix(k.Namespace+"/"+k.Name, "/"), Tag: "good", Word: "allows"}
	v.Unhealthy = max(0, k.Expected-k.Healthy)
	v.Room = max(0, min(k.RemediationsAllowed, k.Healthy))
	switch {
	case k.State != "" && k.State != "Active":
		v.Tag, v.Word = "warn", k.State
	case !k.Allowed:
		v.Tag, v.Word = "bad", cmp.Or(k.Reason, "ShortCircuit")
	case k.SelectsNothing:
		v.Tag, v.Word = "warn", "selects nothing"
	}
	if k.Expected <= 0 {
		return v
	}
	share := func(n int) int { return 1000 * min(n, k.Expected) / k.Expected }
	v.BadWidth = share(v.Unhealthy)
	v.BadX = 1000 - v.BadWidth
	v.RoomWidth = min(share(v.Room), v.BadX)
	v.RoomX = v.BadX - v.RoomWidth
	return v
}

type bmcsView struct {
	wire.BMCCount
	rows[wire.BMC]
}

func bmcsOf(s *snapshot) bmcsView {
	list := keepIf(s.bmcs, func(b wire.BMC) bool { return b.Undependable() && !b.IsUnreadCluster() })
	return bmcsView{s.status.BMCs, rowsOf(list, 0)}
}

type holdView struct {
	wire.HoldStatus
	Cluster string
}

func holdsOf(st wire.Status) rows[holdView] {
	var list []holdView
	for _, c := range st.Clusters {
		for _, h := range c.Holds {
			list = append(list, holdView{h, c.Name})
		}
	}
	return rowsOf(list, 0)
}

type requestView struct {
	wire.RequestStatus
	Cluster string
}

func requestsOf(st wire.Status) rows[requestView] {
	var list []requestView
	more := 0
	for _, c := range st.Clusters {
		for _, r := range c.Requests {
			list = append(list, requestView{r, c.Name})
		}
		more += c.RequestsMore
	}
	return rowsOf(list, more)
}

// ClassNote says what ends a refusal.
func ClassNote(class string) string {
	switch reason.Class(class) {
	case reason.Transient:
		return "may pass: fenced tries again by itself"
	case reason.Mended:
		return "needs a change: fenced tries again when it sees one"
	case reason.Person:
		return "needs a person"
	}
	return ""
}

// byUrgency are the states of a Node, each with its letter and what it means.
var byUrgency = []nodeState{
	{wire.NodeHeld, "H", "its run needs a person"},
	{wire.NodeRemediating, "R", "a run is open"},
	{wire.NodeWaiting, "W", "its run waits"},
	{wire.NodeBlocked, "B", "a check wants it remediated, and something forbids it"},
	{wire.NodeUnseen, "~", "fenced does not see its cluster now"},
	{wire.NodeUnhealthy, "U", "unhealthy; no check wants it remediated yet"},
	{wire.NodeOnHold, "P", "a person holds it, or a quarantine"},
	{wire.NodeUnfenceable, "X", "covered by a check, but its power could not be switched"},
	{wire.NodeHealthy, "✓", ""},
	{wire.NodeUncovered, "–", "no check covers it"},
}

type nodeState struct{ Name, Letter, Means string }

// stateOf is the state of a Node; one that this program does not know is shown with a question mark.
func stateOf(n *wire.Node) nodeState {
	if i := slices.IndexFunc(byUrgency, func(s nodeState) bool { return s.Name == n.State }); i >= 0 {
		return byUrgency[i]
	}
	return nodeState{"Unknown", "?", "a state that this fencectl does not know"}
}
