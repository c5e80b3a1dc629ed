package admit

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// zoneOf returns the zone of the host of a run, or of a draft; "" if it is in none. The labels in the
// record come first: a host stays where it is, and its Node may be gone, lack the zone label until step
// 5, or be that of another machine with the same name. A run whose record has no labels counts where
// its Node is; if that does not tell, known is false: the host counts in every zone. // I11
func zoneOf(l *policy.Ledger, key string, r *remediate.Run) (zone string, known bool) {
	if zone := r.NodeLabels[key]; zone != "" {
		return zone, true
	}
	n := l.Node(r.Target.Node)
	switch ours := n != nil && n.UID == r.Target.NodeUID; {
	case n != nil && n.Labels[key] != "":
		return n.Labels[key], true
	case ours && n.BootID == "":
		return "", false
	case ours && r.Attempt <= 1:
		return "", true
	}
	return "", r.NodeLabels != nil
}

// knownNode returns the labels of a target's Node, and how it names its Machines, for the record of a new run. If there
// is no Node, they are those in the newest record of the same Node or Machine; nil: nobody knows them. // I11
func (b handoverBook) knownNode(t remediate.Target, n *policy.Node) (map[string]string, remediate.NodeNames) {
	if n != nil {
		return remediate.KnownLabels(n.Labels), remediate.KnownNames(remediate.NodeNames(n.Names()))
	}
	newest := &remediate.Run{}
	for _, r := range b.allRuns().each() {
		sameNode := t.Node != "" && r.Target.Node == t.Node
		sameMachine := t.Machine != "" && r.Target.MachineKey() == t.MachineKey() && r.Target.MachineUID == t.MachineUID
		if r.NodeLabels != nil && (sameNode || sameMachine) && (newest.NodeLabels == nil || r.Started.After(newest.Started)) {
			newest = r
		}
	}
	return newest.NodeLabels, newest.NodeNames
}

// zoneKey is the label that holds the zone, for a candidate.
func zoneKey(a candidate, limits *Limits) string { return cmp.Or(a.zoneKey, limits.Guards().ZoneKey) }

// countZone fills in how many runs other than that of the candidate are in flight in its zone. If
// the zone is not known, it may be the one with the most of them. The breaker of a zone counts only
// Nodes that exist: it is about a view that cannot be trusted, and a run has proven its host off. // I11
func (rs runs) countZone(l *policy.Ledger, key string, draft *remediate.Run, f *guard.Facts) {
	inZone, inAny := map[string]int{}, 0
	for _, r := range rs.each() {
		if r.ID == draft.ID || !rs.countsInZone(r) {
			continue
		}
		if zone, known := zoneOf(l, key, r); !known {
			inAny++
		} else if zone != "" {
			inZone[zone]++
		}
	}
	switch {
	case f.ZoneUnknown:
		f.ZoneInFlight = inAny + slices.Max(append(slices.Collect(maps.Values(inZone)), 0))
	case f.Zone != "":
		f.ZoneInFlight = inAny + inZone[f.Zone]
	}
}

// anyZone says whether a Node has the zone label key. The ledger knows that of its own, ledgerKey.
func anyZone(l *policy.Ledger, ledgerKey, key string) bool {
	if key == ledgerKey {
		return l.HasZones()
	}
	for n := range l.Nodes() {
		if n.Labels[key] != "" {
			return true
		}
	}
	return false
}

// fleetOf counts Nodes, and those of one zone. The ledger counts by one zone label,
// ledgerKey. For a check with another zone label this function counts, which is slower.
func fleetOf(l *policy.Ledger, ledgerKey, key, zone string) policy.Fleet {
	if zone == "" || key == ledgerKey {
		return l.Fleet(zone)
	}
	f := l.Fleet("")
	for n := range l.Nodes() {
		if n.Labels[key] != zone {
			continue
		}
		f.ZoneNodes++
		if !n.Ready() {
			f.ZoneNotReady++
		}
	}
	return f
}
