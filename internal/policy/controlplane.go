package policy

import "slices"

// oneControlPlaneHost lets at most one control-plane host be power-cycled at a
// time: the one already in flight, or else the first by name. // I12
func oneControlPlaneHost(r *Report, v *view) {
	holder := v.controlPlaneInFlight()
	var waiting []*TargetReport
	for i := range r.Checks {
		for j := range r.Checks[i].Targets {
			t := &r.Checks[i].Targets[j]
			if t.ControlPlane && t.Action == PowerCycle {
				waiting = append(waiting, t)
			}
		}
	}
	if len(holder) == 0 {
		if first := firstInLine(waiting); first != "" {
			holder = map[string]bool{first: true}
		}
	}
	for _, t := range waiting {
		if len(holder) > 1 || len(holder) == 1 && !holder[t.Machine] {
			t.refuse(ControlPlaneBusy)
		}
	}
}

// controlPlaneInFlight lists the control-plane Machines that are being remedied
// or whose remediation has been requested.
func (v *view) controlPlaneInFlight() map[string]bool {
	busy := map[string]bool{}
	for i := range v.Machines {
		m := &v.Machines[i]
		n := v.Nodes[m.NodeName]
		if !m.ControlPlane && (n == nil || !n.ControlPlane) {
			continue
		}
		if m.ExternalRemediationRequested || v.OpenRuns[m.Key()] != "" {
			busy[m.Key()] = true
		}
	}
	return busy
}

// firstInLine is the first Machine by name that nothing but its quorum holds
// back; a target that is refused anyway must not block the others.
func firstInLine(waiting []*TargetReport) string {
	first := ""
	for _, t := range waiting {
		refused := slices.ContainsFunc(t.Refusals, func(r Reason) bool { return r != QuorumUnknown })
		if !refused && (first == "" || t.Machine < first) {
			first = t.Machine
		}
	}
	return first
}
