package hosts

import (
	"context"
	"fmt"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

// A pin or an enrolment says which machine a host is. If its Node is seen on another machine, that
// is void: the BMC still leads to the old machine, which may be anything by now. As long as the
// Node exists, its system UUID shows that. When it is gone, only the record does. // I8, I10
//
// One sight is enough, of a Node that need not be Ready: kubelets report it over an authenticated
// connection, and nothing is lost if it was wrong. The evidence counts again as soon as a health
// check finds the Node Ready on its machine.

// compareNode makes what is stored about the hosts of a Node void if the Node is on another machine.
// A BareMetalHost counts only if the pin is of this Node: whoever may write a Machine chooses which
// BareMetalHost is said to be the host of a Node.
func (w *pinWriter) compareNode(n *policy.Node) {
	if n == nil || !bmc.UsableUUID(n.SystemUUID) {
		return
	}
	t, _ := w.view.TargetOn(n.Name)
	t.Node = n.Name
	for _, host := range names(w.cluster, t) {
		p, found, err := w.catalog.pins.get(host)
		isMetal := t.BareMetalHost != "" && host == w.cluster+"/"+t.BareMetalHost
		if err != nil || !found || !contradicts(p.SystemUUID, n.SystemUUID) || isMetal && p.Node != "" && p.Node != n.Name {
			continue
		}
		w.catalog.pins.contradict(host, n.SystemUUID, fmt.Sprintf("Node %s was seen on the machine %s, and %s was pinned or enrolled for %s; "+
			"that counts again when the Node is Ready on that machine, or after fencectl bmc enroll", n.Name, n.SystemUUID, host, p.SystemUUID))
	}
}

// saveContradictions stores what is void and not stored yet. Each health check tries it again.
func (w *pinWriter) saveContradictions(ctx context.Context) {
	for _, p := range w.catalog.pins.unsavedOf(w.cluster) {
		switch _, err := w.put(ctx, p); {
		case isConflict(err), err != nil && ctx.Err() != nil:
		case err != nil:
			w.emit(event.Event{Type: event.Failed, Node: p.Node, Message: "store that an identity is contradicted: " + err.Error()})
		default:
			w.emit(event.Event{Type: event.Refused, Node: p.Node, Reason: reason.IdentityMismatch, Message: p.Contradicted})
			w.view.Wake()
		}
	}
}

// enrolmentHolds reports whether an enrolment that was contradicted counts again: its Node is Ready
// on the machine that it is for.
func (w *pinWriter) enrolmentHolds(k Checked, p state.Pin) bool {
	return p.EnrolledBy != "" && p.Contradicted != "" && k.Subject.Healthy && k.Identity != guard.IdentityDiffers && w.isNodeOn(k.Subject, p.SystemUUID)
}

// isNodeOn reports whether the watch shows the Node of a subject on a machine now. The subject of a
// health check may be minutes old.
func (w *pinWriter) isNodeOn(s Subject, machine string) bool {
	n := w.view.Node(s.Node)
	return n != nil && bmc.UUIDsMatch(n.SystemUUID, machine)
}
