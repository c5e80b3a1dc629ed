package page

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/wire"
)

// nodeRead is what was read about one Node or Machine.
type nodeRead struct {
	explain  wire.Explanation
	timeline wire.Timeline
	bmcs     []wire.BMC
	node     *wire.Node
	holds    []wire.HoldStatus
}

type nodeView struct {
	wire.Explanation
	Name    string
	Known   *wire.Node
	State   nodeState
	Class   string // of the refusal, in words
	Holds   []wire.HoldStatus
	Blocked []wire.Blocked
	Gates   []gateView
}

type gateView struct {
	reason.Gate
	Word, Tag string
}

// maxNodeRuns is how many runs the page of a Node shows: the newest.
const maxNodeRuns = 10

// nodePage draws the page of a Node.
func nodePage(r nodeRead, now time.Time) (*part, error) {
	e := r.explain
	v := nodeView{Explanation: e, Name: cmp.Or(e.Node, e.Machine), Known: r.node, Class: ClassNote(e.Class), Holds: r.holds, Blocked: r.timeline.Blocked}
	if r.node != nil {
		v.State = stateOf(r.node)
	}
	for _, g := range e.Gates {
		v.Gates = append(v.Gates, gateOf(g))
	}
	tl := timelineOf("", r.timeline, now)
	slices.Reverse(tl.Runs)
	d := draft{}
	return &part{id: "main", parts: []*part{
		d.leaf("s-node", "nodehead", v),
		d.leaf("s-devices", "devices", r.bmcs),
		d.leaf("s-gates", "gates", v),
		d.leaf("s-noderuns", "noderuns", tl.Runs[:min(len(tl.Runs), maxNodeRuns)]),
		d.leaf("s-notes", "notesof", tl.Notes),
	}}, d.err
}

func gateOf(g reason.Gate) gateView {
	v := gateView{g, "passes", "good"}
	switch {
	case g.Waived:
		v.Word, v.Tag = "waived", "warn"
	case g.Unchecked:
		v.Word, v.Tag = "not checked yet", "warn"
	case !g.Pass:
		v.Word, v.Tag = "forbids", "bad"
	}
	return v
}

// runPage draws the page of a run.
func runPage(tl wire.Timeline, log *Audit, now time.Time) (*part, error) {
	r := &tl.Runs[0]
	v := timelineOf(fmt.Sprintf("Run of %s in %s", cmp.Or(r.Node, r.Machine), r.Cluster), tl, now)
	d := draft{}
	return &part{id: "main", parts: []*part{
		d.leaf("s-run", "runhead", v),
		d.leaf("s-notes", "notesof", tl.Notes),
		d.leaf("s-audit", "auditof", log),
	}}, d.err
}
