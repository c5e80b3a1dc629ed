package policy

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
)

// Guards are the conditions that no check knows about and that must all hold
// before the daemon acts: cheap and general ones first, so that the first
// failure is the most telling. Every gate is always in the list, passed or not.
//
// An order by a person skips what doubts the daemon's own judgement (clocks,
// rates, the breaker); it never skips pause, hold, identity, quorum, a living
// rival or the own host.
func Guards(l Limits, f Facts, now time.Time) []Gate {
	gates := viewGuards(l, f, now)
	gates = append(gates, targetGuards(f)...)
	gates = append(gates, hostGuards(f)...)
	gates = append(gates, rateGuards(l, f, now)...)
	return waived(f, gates)
}

// StartGuards are the gates that a run which has just begun can close for the next
// one: they are asked again in the very moment of a start. // I11, I12
func StartGuards(l Limits, f Facts, now time.Time) []Gate {
	gates := []Gate{openRunGuard(f), controlPlaneGuard(f)}
	return waived(f, append(gates, rateGuards(l, f, now)...))
}

func waived(f Facts, gates []Gate) []Gate {
	if f.Manual {
		for i := range gates {
			gates[i].waive()
		}
	}
	return gates
}

// waivable are the gates that an order by a person passes: a person has looked,
// and answers for it.
var waivable = map[Reason]bool{
	QuietPeriod: true, EverythingDown: true, ZoneBreaker: true, Protected: true, NodeAlive: true,
	InFlightLimit: true, ZoneInFlight: true, PowerInterval: true, FencesPerDay: true,
	TotalInFlight: true, StartRate: true, Quarantined: true,
}

func (g *Gate) waive() {
	if !g.Pass && waivable[g.Reason] {
		g.Pass, g.Until = true, time.Time{}
		g.Value += " (waived: ordered by a person)"
	}
}

// gate makes a Gate; the reason is only kept when it does not hold.
func gate(name string, pass bool, reason Reason, value, threshold, source string) Gate {
	g := Gate{Name: name, Pass: pass, Value: value, Threshold: threshold, Source: source}
	if !pass {
		g.Reason = reason
	}
	return g
}

// until notes when a gate that does not hold could hold.
func (g Gate) until(t time.Time) Gate {
	if !g.Pass {
		g.Until = t
	}
	return g
}

// absent is a gate that holds when there is nothing to say against it.
func absent(name string, reason Reason, objection, source string) Gate {
	return gate(name, objection == "", reason, orNone(objection), "none", source)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// viewGuards ask whether this daemon may act here at all, and whether what it
// sees of the cluster can be believed. // I16
func viewGuards(l Limits, f Facts, now time.Time) []Gate {
	return []Gate{
		modeGuard(f),
		absent("owner", NotOwner, f.ForeignOwner, cmp.Or(f.OwnerSource, "Lease fenced")),
		absent("pause", Paused, f.Paused, "fencectl pause"),
		gate("viewSynced", f.ViewSynced, NotSynced, strconv.FormatBool(f.ViewSynced), "true", "watch"),
		gate("viewAge", f.ViewAge <= l.ViewMaxAge, ViewStale, f.ViewAge.String(), l.ViewMaxAge.String(), "guards.viewMaxAge"),
		gate("clockSkew", f.ClockSkew.Abs() <= l.ClockSkewMax, ClockSkew, f.ClockSkew.String(), l.ClockSkewMax.String(), "guards.clockSkewMax"),
		visibleGuard(f),
		gate("everythingDown", f.ClusterNodes < 2 || f.ClusterNotReady < f.ClusterNodes, EverythingDown,
			share(f.ClusterNotReady, f.ClusterNodes)+" not ready", "not all", "watch"),
		gate("quietPeriod", !now.Before(f.QuietUntil), QuietPeriod, quiet(f.QuietUntil, now), l.QuietPeriod.String(),
			"guards.quietPeriod").until(f.QuietUntil),
	}
}

// visibleGuard asks whether the workload API shows this cluster's Nodes at all:
// pointed at another one, every Node would be missing.
func visibleGuard(f Facts) Gate {
	value := count1(f.ClusterNodes, "Node")
	if f.NodesElsewhere != "" {
		value += "; " + f.NodesElsewhere
	}
	return gate("nodesVisible", f.ClusterNodes > 0 && f.NodesElsewhere == "", NoNodesVisible, value, "at least 1 of this cluster", "watch")
}

func modeGuard(f Facts) Gate {
	value := f.Mode
	if f.Mode == ModeObserve && f.Armed {
		value += ", armed"
	}
	pass := f.Mode == ModeEvaluate || f.Mode == ModeObserve && f.Armed || f.Mode == ModeRespond && f.Manual
	return gate("mode", pass, Observing, value, "evaluate, or armed", "clusters[].mode")
}

// targetGuards ask whether this target is free to be acted on.
func targetGuards(f Facts) []Gate {
	protected := ""
	if f.Protected {
		protected = "protected"
	}
	alive := ""
	if f.NodeAlive {
		alive = "Ready is Unknown, but the Lease moves"
	}
	return []Gate{
		absent("hold", Hold, f.Held, "fencectl hold"),
		absent("quarantine", Quarantined, f.Quarantined, "guards.maxFencesPerDay").until(f.QuarantinedUntil), // I15
		openRunGuard(f),
		absent("protected", Protected, protected, "hosts.d"),
		absent("ownHost", OwnHost, f.OwnHost, "this host"),                        // I13
		absent("uniqueUUID", DuplicateUUID, f.UUIDTwin, "Nodes"),                  // I9
		absent("frozen", cmp.Or(f.FrozenReason, Frozen), f.Frozen, "a false Off"), // I5
		absent("nodeAlive", NodeAlive, alive, "Lease"),                            // I4
		absent("contested", Contested, f.Contested, "leader Lease"),
		controlPlaneGuard(f),
		quorumGuard(f),
	}
}

func openRunGuard(f Facts) Gate { return absent("openRun", UnderRemediation, f.OpenRun, "state") }

// controlPlaneGuard: one control-plane host at a time. // I12
func controlPlaneGuard(f Facts) Gate {
	return absent("controlPlane", ControlPlaneBusy, f.ControlPlaneRun, "state")
}

// quorumGuard asks whether etcd survives the loss of a control-plane host. // I12
func quorumGuard(f Facts) Gate {
	if !f.ControlPlane {
		return gate("quorum", true, "", "not a control-plane host", "none", "guards.controlPlane")
	}
	return gate("quorum", f.QuorumHolds, cmp.Or(f.QuorumReason, QuorumUnknown), cmp.Or(f.QuorumDetail, "etcd's health is not known"),
		"a quorum without it", "guards.controlPlane")
}

// hostGuards ask whether there is a BMC, and whether it is the right one. They
// hold by themselves when the action needs none.
func hostGuards(f Facts) []Gate {
	if !f.NeedsHost {
		return nil
	}
	host := gate("host", f.HostError == "" && f.Host != "", f.HostError, f.Host, "a usable BMC", "BareMetalHost or hosts.d")
	if !host.Pass {
		host.Value = f.HostDetail
		if host.Reason == "" {
			host.Reason = NoHost
		}
	}
	return []Gate{
		host,
		absent("uniqueHost", DuplicateHost, f.Duplicate, "inventory and BMCs"), // I9
		absent("powerOwner", PowerOwner, f.PowerOwner, "BareMetalHost"),
		identityGuard(f),
	}
}

// identityGuard compares BMC and Node. Not having read the BMC yet does not
// refuse: step 1 reads and compares on the session that it then uses. // I8
func identityGuard(f Facts) Gate {
	i := f.Identity
	g := gate("identity", true, "", "", i.Mode, "guards.identity")
	switch {
	case i.Mode == "off" && !f.Manual:
		g.Pass, g.Reason, g.Value = false, IdentityUnknown, "not compared"
	case i.Mode == "off":
		g.Value = "not compared"
	case i.Verdict == IdentityDiffers:
		g.Pass, g.Reason, g.Value = false, IdentityMismatch, fmt.Sprintf("BMC %s, Node %s", i.BMC, i.Node)
	case i.Verdict == IdentityNotEnrolled:
		g.Pass, g.Reason, g.Value = false, NotEnrolled, "nobody has enrolled it (fencectl bmc enroll)"
	case i.Verdict == IdentityUnproven:
		g.Pass, g.Reason, g.Value = false, IdentityUnknown, fmt.Sprintf("BMC %s, Node %s", orNone(i.BMC), orNone(i.Node))
	case i.Verdict == IdentityMatches:
		g.Value = "match"
	default:
		g.Value = "not read yet; compared before the power command"
	}
	return g
}
