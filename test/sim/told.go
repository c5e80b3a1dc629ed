package sim

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/times"
)

// knowledge is what one process of a fenced has learned from its files and its
// watch; the audits expect no more. Guarded by the world's mutex.
type knowledge struct {
	ways  map[string]way         // hosts.d, by Node
	files []string               // of policies.d
	metal map[string][]toldMetal // by Node, the newest last
	nodes map[string][]toldNode  // by name, the newest last
	check toldCheck
	// requests are the FencedRemediations, by name.
	requests map[string]toldRequest
}

// toldMetal is the host whose BMC a BareMetalHost led to.
type toldMetal struct {
	to *host
	at time.Time
}

// toldNode is the part of a Node that may justify a run, or forbid it.
type toldNode struct {
	gone  bool
	uuid  string
	zone  string
	named time.Time // since when it had that UUID
	ready string
	since time.Time // as the API server wrote it
	at    time.Time // time of the update
}

// toldCheck is whether the check of the cluster covers anything.
type toldCheck struct {
	hollow bool
	gone   bool
	at     time.Time
}

// read reads the files, as at a start. w.mu is held.
func (w *World) read() knowledge {
	k := knowledge{ways: map[string]way{}, metal: map[string][]toldMetal{}, nodes: map[string][]toldNode{}, requests: map[string]toldRequest{}}
	for _, h := range w.hosts {
		if h.listed {
			k.ways[h.Name] = h.leads
		}
	}
	for _, f := range w.files {
		k.files = append(k.files, f.Name)
	}
	return k
}

// take records a change from the watch.
func (k *knowledge) take(w *World, c policy.Change, now time.Time) {
	switch c.ID.Kind {
	case "Node":
		t := toldNode{gone: true, at: now}
		if n, ok := c.Value.(*policy.Node); ok && n != nil {
			ready := n.Conditions[0].Condition()
			t = toldNode{uuid: n.SystemUUID, zone: n.Labels.Get("zone"), ready: ready.Status, since: ready.LastTransition, at: now, named: now}
		}
		if before := lastOf(k.nodes[c.ID.Name]); len(before) > 0 && before[0].uuid == t.uuid {
			t.named = before[0].named
		}
		k.nodes[c.ID.Name] = append(lastOf(k.nodes[c.ID.Name]), t)
	case "BareMetalHost":
		if h, ok := c.Value.(*policy.Host); ok && h != nil {
			if before := k.metal[h.Name]; len(before) == 0 || before[len(before)-1].to != w.at(h.Address) {
				k.metal[h.Name] = append(lastOf(before), toldMetal{w.at(h.Address), now})
			}
		}
	case w.check.Kind:
		if c.ID.Name != w.check.Name {
			return
		}
		check, ok := c.Value.(*policy.Check)
		k.check = toldCheck{hollow: !ok || check != w.check, gone: !ok, at: now}
	case policy.FencedRemediationKind:
		q, _ := c.Value.(*policy.Request)
		k.requests[c.ID.Name] = k.requests[c.ID.Name].seen(q, now)
	}
}

// lastOf returns a list with only its newest element.
func lastOf[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return slices.Clone(list[len(list)-1:])
}

// wayTo is the host whose BMC an entry led to, and since when. sure: the entry is
// in hosts.d, or enrolled.
type wayTo struct {
	to   *host
	at   time.Time
	sure bool
}

// leads returns those of a host's entries.
func (c *incarnation) leads(h *host) (all []wayTo) {
	way, listed := c.knows.ways[h.Name]
	if listed {
		all = append(all, wayTo{way.bmc, c.since, true})
	}
	if list := c.knows.metal[h.Name]; len(list) > 0 {
		last := list[len(list)-1]
		if last.to != nil && !(listed && last.to == way.bmc) {
			all = append(all, wayTo{last.to, last.at, h.pinned && !h.listed && last.to == h})
		}
	}
	return all
}

// mayBeEnrolled reports whether a host's entries may be known: by hosts.d, an
// enrolment, or a run that has pinned what it proved.
func (c *incarnation) mayBeEnrolled(h *host) bool {
	return slices.ContainsFunc(c.leads(h), func(l wayTo) bool { return l.sure || l.to == h })
}

// duplicateReason returns why a host with a UUID may be the same machine as
// another one, and since when that was known. // I9
func (c *incarnation) duplicateReason(h *host, uuid string) (why string, since time.Time) {
	leads := c.knows.ways[h.Name]
	for _, o := range c.i.w.hosts {
		if o == h {
			continue
		}
		for _, theirs := range c.leads(o) {
			for _, mine := range c.leads(h) {
				if mine.to == theirs.to && (theirs.sure || !c.mayBeEnrolled(h)) { // otherwise only theirs is refused
					return o.Name + " leads to the BMC of " + mine.to.Name + ", too", times.Later(mine.at, theirs.at)
				}
			}
		}
		if theirs := c.knows.ways[o.Name]; len(h.outlets) > 0 && leads.outlets != nil && theirs.outlets == leads.outlets {
			return o.Name + " leads to the outlets of " + leads.outlets.Name + ", too", c.since
		}
	}
	told, at := c.uuid(h.Name)
	for name := range c.knows.nodes {
		if other, from := c.uuid(name); name != h.Name && uuid != "" && other == uuid {
			if told == uuid {
				from = times.Later(from, at)
			}
			return "Node " + name + " tells the same UUID", from
		}
	}
	return "", time.Time{}
}

// zoneOf is the zone of a Node, as this fenced knew it; "" if there was no Node, or one without that
// label.
func (c *incarnation) zoneOf(node string) string {
	list := c.knows.nodes[node]
	if len(list) == 0 {
		return ""
	}
	return list[len(list)-1].zone
}

// uuid is the UUID in a Node, as this fenced knew it, and since when.
func (c *incarnation) uuid(node string) (string, time.Time) {
	list := c.knows.nodes[node]
	if len(list) == 0 {
		return "", time.Time{}
	}
	return list[len(list)-1].uuid, list[len(list)-1].named
}
