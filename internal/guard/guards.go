package guard

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Gates are the conditions that no check knows about and that must all hold
// before the daemon acts: cheap and general ones first, so that the first
// failure is the most telling. Every gate is always in the list, passed or not.
//
// An order by a person skips what doubts the daemon's own judgement (clocks,
// rates, the breaker); it never skips pause, hold, identity, quorum, a living
// rival or the own host.
func Gates(l Limits, f Facts, now time.Time) []reason.Gate {
	gates := viewGuards(l, f, now)
	gates = append(gates, targetGuards(f)...)
	gates = append(gates, hostGuards(f)...)
	gates = append(gates, rateGuards(l, f, now)...)
	return waive(f, gates)
}

// StartGates are the gates that a run which has just begun can close for the next
// one: they are asked again in the very moment of a start. // I11, I12
func StartGates(l Limits, f Facts, now time.Time) []reason.Gate {
	gates := []reason.Gate{openRunGuard(f), controlPlaneGuard(f)}
	return waive(f, append(gates, rateGuards(l, f, now)...))
}

// waive lets the waivable gates pass for an order by a person.
func waive(f Facts, gates []reason.Gate) []reason.Gate {
	if !f.Manual {
		return gates
	}
	for i := range gates {
		if g := &gates[i]; !g.Pass && waivable[g.Reason] {
			g.Pass, g.Until = true, time.Time{}
			g.Value += " (waived: ordered by a person)"
		}
	}
	return gates
}

// waivable are the gates that an order by a person passes: a person has looked,
// and answers for it.
var waivable = map[reason.Code]bool{
	reason.QuietPeriod: true, reason.EverythingDown: true, reason.ZoneBreaker: true, reason.Protected: true, reason.NodeAlive: true,
	reason.InFlightLimit: true, reason.ZoneInFlight: true, reason.PowerInterval: true, reason.FencesPerDay: true,
	reason.TotalInFlight: true, reason.StartRate: true, reason.Quarantined: true,
}

// viewGuards ask whether this daemon may act here at all, and whether what it
// sees of the cluster can be believed. // I16
func viewGuards(l Limits, f Facts, now time.Time) []reason.Gate {
	return []reason.Gate{
		modeGuard(f),
		reason.NoneOf("owner", reason.NotOwner, f.ForeignOwner, cmp.Or(f.OwnerSource, "Lease fenced")),
		reason.NoneOf("pause", reason.Paused, f.Paused, "fencectl pause"),
		reason.NewGate("viewSynced", f.ViewSynced, reason.NotSynced, strconv.FormatBool(f.ViewSynced), "true", "watch"),
		reason.NewGate("viewAge", f.ViewAge <= l.ViewMaxAge, reason.ViewStale, f.ViewAge.String(), l.ViewMaxAge.String(), "guards.viewMaxAge"),
		reason.NewGate("clockSkew", f.ClockSkew.Abs() <= l.ClockSkewMax, reason.ClockSkew, f.ClockSkew.String(), l.ClockSkewMax.String(), "guards.clockSkewMax"),
		visibleGuard(f),
		reason.NewGate("everythingDown", f.ClusterNodes < 2 || f.ClusterNotReady < f.ClusterNodes, reason.EverythingDown,
			share(f.ClusterNotReady, f.ClusterNodes)+" not ready", "not all", "watch"),
		reason.NewGate("quietPeriod", !now.Before(f.QuietUntil), reason.QuietPeriod, quiet(f.QuietUntil, now), l.QuietPeriod.String(),
			"guards.quietPeriod").OpenFrom(f.QuietUntil),
	}
}

// visibleGuard asks whether the workload API shows this cluster's Nodes at all:
// pointed at another one, every Node would be missing.
func visibleGuard(f Facts) reason.Gate {
	value := count1(f.ClusterNodes, "Node")
	if f.NodesElsewhere != "" {
		value += "; " + f.NodesElsewhere
	}
	return reason.NewGate("nodesVisible", f.ClusterNodes > 0 && f.NodesElsewhere == "", reason.NoNodesVisible, value, "at least 1 of this cluster", "watch")
}

func modeGuard(f Facts) reason.Gate {
	value := f.Mode
	if f.Mode == ModeObserve && f.Armed {
		value += ", armed"
	}
	pass := f.Mode == ModeEvaluate || f.Mode == ModeObserve && f.Armed || f.Mode == ModeRespond && f.Manual
	return reason.NewGate("mode", pass, reason.Observing, value, "evaluate, or armed", "clusters[].mode")
}

// targetGuards ask whether this target is free to be acted on.
func targetGuards(f Facts) []reason.Gate {
	protected := ""
	if f.Protected {
		protected = "protected"
	}
	alive := ""
	if f.NodeAlive {
		alive = "Ready is Unknown, but the Lease moves"
	}
	return []reason.Gate{
		reason.NoneOf("hold", reason.Hold, f.Held, "fencectl hold"),
		reason.NoneOf("quarantine", reason.Quarantined, f.Quarantined, "guards.maxFencesPerDay").OpenFrom(f.QuarantinedUntil), // I15
		openRunGuard(f),
		reason.NoneOf("protected", reason.Protected, protected, "hosts.d"),
		reason.NoneOf("ownHost", reason.OwnHost, f.OwnHost, "this host"),                        // I13
		reason.NoneOf("uniqueUUID", reason.DuplicateUUID, f.UUIDTwin, "Nodes"),                  // I9
		reason.NoneOf("frozen", cmp.Or(f.FrozenReason, reason.Frozen), f.Frozen, "a false Off"), // I5
		reason.NoneOf("nodeAlive", reason.NodeAlive, alive, "Lease"),                            // I4
		reason.NoneOf("contested", reason.Contested, f.Contested, "leader Lease"),
		controlPlaneGuard(f),
		quorumGuard(f),
	}
}

func openRunGuard(f Facts) reason.Gate {
	return reason.NoneOf("openRun", reason.UnderRemediation, f.OpenRun, "state")
}

// controlPlaneGuard: one control-plane host at a time. // I12
func controlPlaneGuard(f Facts) reason.Gate {
	return reason.NoneOf("controlPlane", reason.ControlPlaneBusy, f.ControlPlaneRun, "state")
}

// quorumGuard asks whether etcd survives the loss of a control-plane host. // I12
func quorumGuard(f Facts) reason.Gate {
	if !f.ControlPlane {
		return reason.NewGate("quorum", true, "", "not a control-plane host", "none", "guards.controlPlane")
	}
	return reason.NewGate("quorum", f.QuorumHolds, cmp.Or(f.QuorumReason, reason.QuorumUnknown), cmp.Or(f.QuorumDetail, "etcd's health is not known"),
		"a quorum without it", "guards.controlPlane")
}

// hostGuards ask whether there is a BMC, and whether it is the right one. They
// hold by themselves when the action needs none.
func hostGuards(f Facts) []reason.Gate {
	if !f.NeedsHost {
		return nil
	}
	host := reason.NewGate("host", f.HostError == "" && f.Host != "", f.HostError, f.Host, "a usable BMC", "BareMetalHost or hosts.d")
	if !host.Pass {
		host.Value = f.HostDetail
		if host.Reason == "" {
			host.Reason = reason.NoHost
		}
	}
	return []reason.Gate{
		host,
		reason.NoneOf("uniqueHost", reason.DuplicateHost, f.Duplicate, "inventory and BMCs"), // I9
		reason.NoneOf("powerOwner", reason.PowerOwner, f.PowerOwner, "BareMetalHost"),
		identityGuard(f),
	}
}

// identityGuard compares BMC and Node. Not having read the BMC yet does not
// refuse: step 1 reads and compares on the session that it then uses. // I8
func identityGuard(f Facts) reason.Gate {
	i := f.Identity
	g := reason.NewGate("identity", true, "", "", i.Mode, "guards.identity")
	switch {
	case i.Mode == "off" && !f.Manual:
		g.Pass, g.Reason, g.Value = false, reason.IdentityUnknown, "not compared"
	case i.Mode == "off":
		g.Value = "not compared"
	case i.Verdict == IdentityDiffers:
		g.Pass, g.Reason, g.Value = false, reason.IdentityMismatch, fmt.Sprintf("BMC %s, Node %s", i.BMC, i.Node)
	case i.Verdict == IdentityNotEnrolled:
		g.Pass, g.Reason, g.Value = false, reason.NotEnrolled, "nobody has enrolled it (fencectl bmc enroll)"
	case i.Verdict == IdentityUnproven:
		g.Pass, g.Reason, g.Value = false, reason.IdentityUnknown, fmt.Sprintf("BMC %s, Node %s", cmp.Or(i.BMC, "none"), cmp.Or(i.Node, "none"))
	case i.Verdict == IdentityMatches:
		g.Value = "match"
	default:
		g.Value = "not read yet; compared before the power command"
	}
	return g
}
