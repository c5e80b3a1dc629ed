package engine

import "github.com/fenced/fenced/internal/remediate"

// inFlight says whether a run holds a place: from its start until its Node has
// registered, or it is Held or has ended. // I11
func inFlight(r remediate.Run) bool {
	return r.Open() && r.Step != remediate.Held && r.Step != remediate.RestoreNode
}

// offInZone says whether a run's host is not known to be on: until then it counts in
// its zone.
func offInZone(r remediate.Run) bool { return inFlight(r) && r.Step != remediate.AwaitNode }
