package guard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// Gates are the conditions outside the checks that must all hold before the
// daemon acts. Cheap and general ones come first, so that the first failure says
// most. The list always contains every gate, passed or not.
//
// An order by a person skips the gates that question the daemon's own decision:
// clocks, rates and the zone breaker. It never skips pause, hold, identity,
// quorum, another remediator or the own host.
func Gates(l Limits, f Facts, now time.Time) []reason.Gate {
	gates := slices.Concat(viewGuards(l, f, now), targetGuards(f), hostGuards(f), rateGuards(l, f, now))
	return waive(f, markUnread(f, gates))
}

// markUnread marks the gates of which nothing was read yet.
func markUnread(f Facts, gates []reason.Gate) []reason.Gate {
	for i := range gates {
		switch gates[i].Name {
		case "target", "nodeAlive", "nodeLease", "contested", "powerOwner":
			if f.ClusterUnread {
				gates[i] = gates[i].NotChecked("")
			}
		case "host":
			if f.HostUnread {
				gates[i] = gates[i].NotChecked(f.Host + ": the BMC is ")
			}
		case "identity":
			if f.HostUnread && f.Identity.Mode != "off" {
				gates[i] = gates[i].NotChecked("")
			}
		}
	}
	return gates
}

// StartGates are the gates that a run which just started can close for the next
// one. Package admit checks them again when it lists the run
// as open. // I11, I12
func StartGates(l Limits, f Facts, now time.Time) []reason.Gate {
	gates := []reason.Gate{openRunGuard(f), controlPlaneGuard(f)}
	return waive(f, append(gates, rateGuards(l, f, now)...))
}

// waive passes the waivable gates if a person orders the action now.
func waive(f Facts, gates []reason.Gate) []reason.Gate {
	if !f.Manual || f.OwnRetry {
		return gates
	}
	for i := range gates {
		if g := &gates[i]; !g.Pass && waivable[g.Reason] {
			g.Pass, g.Waived, g.Until = true, true, time.Time{}
		}
	}
	return gates
}

// waivable are the gates that an order by a person passes: a person has checked,
// and takes responsibility.
var waivable = map[reason.Code]bool{
	reason.QuietPeriod: true, reason.EverythingDown: true, reason.ZoneBreaker: true, reason.Protected: true, reason.NodeAlive: true,
	reason.InFlightLimit: true, reason.ZoneInFlight: true, reason.PowerInterval: true, reason.FencesPerDay: true,
	reason.TotalInFlight: true, reason.StartRate: true, reason.Quarantined: true,
}

// roundTo is how precisely a gate shows a duration that was measured.
const roundTo = 100 * time.Millisecond

// viewGuards check that this daemon may act in the cluster at all, and that its
// view of the cluster is valid. // I16
func viewGuards(l Limits, f Facts, now time.Time) []reason.Gate {
	return []reason.Gate{
		modeGuard(f),
		reason.NoneOf("owner", reason.NotOwner, f.ForeignOwner, cmp.Or(f.OwnerSource, "Lease fenced")),
		reason.NoneOf("pause", reason.Paused, f.Paused, "fencectl pause"),
		reason.NewGate("viewSynced", f.ViewSynced, reason.NotSynced, strconv.FormatBool(f.ViewSynced), "true", "watch"),
		reason.NewGate("viewAge", f.ViewAge <= l.ViewMaxAge, reason.ViewStale, f.ViewAge.Round(roundTo).String(), l.ViewMaxAge.String(), "guards.viewMaxAge"),
		reason.NewGate("clockSkew", f.ClockSkew.Abs() <= l.ClockSkewMax, reason.ClockSkew, f.ClockSkew.Round(roundTo).String(), l.ClockSkewMax.String(), "guards.clockSkewMax"),
		visibleGuard(f),
		reason.NewGate("everythingDown", f.ClusterNodes < 2 || f.ClusterNotReady < f.ClusterNodes, reason.EverythingDown,
			shareText(f.ClusterNotReady, f.ClusterNodes)+" not ready", "not all", "watch"),
		reason.NewGate("quietPeriod", !now.Before(f.QuietUntil), reason.QuietPeriod, quietText(f.QuietUntil, now), l.QuietPeriod.String(),
			"guards.quietPeriod").PassesFrom(f.QuietUntil),
	}
}

// visibleGuard checks that the workload API shows the Nodes of this cluster. If
// the daemon is pointed at another cluster, every Node seems missing.
func visibleGuard(f Facts) reason.Gate {
	value := countText(f.ClusterNodes, "Node")
	if f.NodesMismatch != "" {
		value += "; " + f.NodesMismatch
	}
	return reason.NewGate("nodesVisible", f.ClusterNodes > 0 && f.NodesMismatch == "", reason.NoNodesVisible, value, "at least 1 of this cluster", "watch")
}

// modeGuard forbids to act in mode observe, except to an administrator: that order is about one
// target, and starts nothing else.
func modeGuard(f Facts) reason.Gate {
	value := f.Mode
	if f.Mode == ModeObserve && f.Armed {
		value += ", armed"
	}
	byAdmin := f.Mode == ModeObserve && !f.Armed && f.Manual && f.ByAdmin
	if byAdmin {
		value += ": an administrator fences by hand"
	}
	threshold := "evaluate, or armed"
	if f.Mode == ModeRespond {
		threshold = "a remediation request, or an order"
	}
	return reason.NewGate("mode", ModeAllows(f), reason.Observing, value, threshold, "clusters[].mode")
}

// ModeAllows says whether the mode of the cluster allows an action. It depends on the mode and on
// who asked. An open run is asked again before each attempt. // I4
func ModeAllows(f Facts) bool {
	switch f.Mode {
	case ModeEvaluate:
		return true
	case ModeObserve:
		return f.Armed || f.Manual && f.ByAdmin
	case ModeRespond:
		return f.Manual || f.Requested
	}
	return false
}

// targetGuards check that nothing forbids an action on this target.
func targetGuards(f Facts) []reason.Gate {
	protected := ""
	if f.Protected {
		protected = "protected"
	}
	alive := ""
	if f.NodeAlive {
		alive = "Ready is Unknown, but the kubelet renews its Lease"
	}
	return []reason.Gate{
		reason.NoneOf("hold", reason.Hold, f.Held, "fencectl hold"),
		reason.NoneOf("quarantine", reason.Quarantined, f.Quarantined, "guards.maxFencesPerDay").PassesFrom(f.QuarantinedUntil), // I15
		openRunGuard(f),
		reason.NoneOf("protected", reason.Protected, protected, "hosts.d"),
		reason.NoneOf("ownHost", reason.OwnHost, f.OwnHost, "this host"),                        // I13
		reason.NoneOf("uniqueUUID", reason.DuplicateUUID, f.NodeWithSameUUID, "Nodes"),          // I9
		reason.NoneOf("frozen", cmp.Or(f.FrozenReason, reason.Frozen), f.Frozen, "a false Off"), // I5
		reason.NoneOf("target", reason.TargetChanged, f.Replaced, "fresh reads"),                // I2, I27
		reason.NoneOf("nodeAlive", reason.NodeAlive, alive, "Lease"),                            // I4
		reason.NoneOf("contested", reason.Contested, f.Contested, "leader Lease"),
		controlPlaneGuard(f),
		quorumGuard(f),
	}
}

func openRunGuard(f Facts) reason.Gate {
	return reason.NoneOf("openRun", reason.UnderRemediation, f.OpenRun, "state")
}

// controlPlaneGuard allows one control-plane host at a time. // I12
func controlPlaneGuard(f Facts) reason.Gate {
	return reason.NoneOf("controlPlane", reason.ControlPlaneBusy, f.ControlPlaneRun, "state")
}

// quorumGuard checks that etcd keeps its quorum without a control-plane host. // I12
func quorumGuard(f Facts) reason.Gate {
	if !f.ControlPlane {
		return reason.NewGate("quorum", true, "", "not a control-plane host", "none", "guards.controlPlane")
	}
	return reason.NewGate("quorum", f.QuorumHolds, cmp.Or(f.QuorumReason, reason.QuorumUnknown), cmp.Or(f.QuorumDetail, "etcd's health is not known"),
		"a quorum without it", "guards.controlPlane")
}

// hostGuards check that there is a BMC, and that it is the right one. There are
// none if the action needs no BMC.
func hostGuards(f Facts) []reason.Gate {
	if !f.NeedsHost {
		return nil
	}
	host := reason.NewGate("host", f.HostError == "" && f.Host != "", f.HostError, f.Host, "a usable BMC", "BareMetalHost or hosts.d")
	switch {
	case host.Pass && f.HostDetail != "":
		host.Value += ": " + f.HostDetail
	case !host.Pass:
		host.Value = f.HostDetail
		if host.Reason == "" {
			host.Reason = reason.NoHost
		}
	}
	return []reason.Gate{
		host,
		reason.NoneOf("uniqueHost", reason.DuplicateHost, f.Duplicate, "inventory and BMCs"), // I9
		reason.NoneOf("powerOwner", reason.PowerOwner, f.PowerOwner, "BareMetalHost"),
		reason.NoneOf("nodeLease", reason.LeaseTooLong, f.LeaseTooLong, "Lease"), // I5
		identityGuard(f),
	}
}

// identityGuard compares BMC and Node. A BMC that was not read yet does not
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
		g.Pass, g.Reason, g.Value = false, reason.NotEnrolled, "not enrolled: check the cabling, then run fencectl bmc enroll"
	case i.Verdict == IdentityUnproven:
		g.Pass, g.Reason, g.Value = false, reason.IdentityUnknown, fmt.Sprintf("BMC %s, Node %s", cmp.Or(i.BMC, "none"), cmp.Or(i.Node, "none"))
	case i.Verdict == IdentityMatches:
		g.Value = "match"
	default:
		g.Value = "not read yet; compared before the power command"
	}
	if !g.Pass && i.Why != "" {
		g.Value = i.Why
	}
	return g
}
