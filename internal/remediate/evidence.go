package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// offProven is the proof that step 2 needs. // I1
func offProven(r Run, s Observation, now time.Time) bool {
	return r.Intervened && s.OffAccepted && s.Identity == Yes && s.Proof.Proven(now)
}

// untilRead is the time until another power read can complete the proof. After that the step
// waits for something else.
func untilRead(s Observation, now time.Time) time.Duration {
	d := s.Proof.NextRead(now).Sub(now)
	if d <= 0 {
		return poll
	}
	return max(50*time.Millisecond, min(poll, d))
}

// leaseQuiet says whether the Lease stood still long enough after the first Off. A Lease that was
// renewed shortly before might be renewed again by a running host.
func leaseQuiet(r Run, s Observation, now time.Time) bool {
	if !s.Lease.Known || r.OffLease == nil {
		return false
	}
	l := *r.OffLease
	recent := (l.KubeletReporting || s.Proof.Since().Sub(l.RenewTime) < l.recentFor()) && l.ResourceVersion != ""
	since := later(s.Proof.Since(), l.Seen) // while the API did not answer, nothing showed that it stood still
	return !recent || now.Sub(since) >= l.quietFor()
}

// leaseAdvanced says whether the Lease advanced since the first Off read. // I5
func leaseAdvanced(r Run, s Observation) bool {
	return r.OffLease != nil && s.Lease.Known && s.Lease.ResourceVersion != "" &&
		s.Lease.ResourceVersion != r.OffLease.ResourceVersion
}

// powerLockHeld says whether no other power owner may switch the host on: our power lock is set,
// or there is no other owner. powerLockFree says whether our power lock is not set.
func powerLockHeld(r Run, s Observation) bool {
	return r.Target.BareMetalHost == "" || s.PowerLock == Yes
}
func powerLockFree(r Run, s Observation) bool {
	return r.Target.BareMetalHost == "" || s.PowerLock == No
}

// registeredSinceIsolation says whether the present Node registered after the isolation.
func registeredSinceIsolation(r Run, n Node) bool {
	return n.Exists == Yes && n.BootID != "" && (r.Isolation == IsolateTaint || n.UID != r.Target.NodeUID)
}

// isTargetMachine says whether a Node has the system UUID of the run's machine, if that is
// known. // I6
func isTargetMachine(r Run, n Node) bool {
	return r.Target.SystemUUID == "" || n.SystemUUID == r.Target.SystemUUID
}

// otherThanReported says whether the Node that registered for a target without one has another
// system UUID than its BMC reported. Not every BMC reports that of its host, so this is no proof
// of a false Off. // I6, I8
func otherThanReported(r Run, n Node) bool {
	return bmc.UsableUUID(r.Target.ReportedUUID) && bmc.UsableUUID(n.SystemUUID) && !bmc.UUIDsMatch(r.Target.ReportedUUID, n.SystemUUID)
}

// noQuorum says whether it is not known that etcd keeps its quorum without this control-plane
// host. // I12
func noQuorum(r Run, s Observation) bool { return r.ControlPlane && s.Quorum != Yes }

// powerReason is the reason code of a failed step 1: why the BMC could not be asked, or what it
// last refused, otherwise fallback.
func powerReason(s Observation, fallback reason.Code) reason.Code {
	switch {
	case s.LevelRefusal != "":
		return s.LevelRefusal
	case s.PowerError != "":
		return reason.OfBMC(string(s.PowerError))
	}
	return fallback
}

func powerReadText(s Observation) string {
	if s.LevelRefusal != "" {
		return "failed (" + string(s.LevelRefusal) + ")"
	}
	if s.PowerError != "" {
		return "failed (" + string(s.PowerError) + ")"
	}
	if s.Power.Partial {
		return "On in part (" + s.Power.Raw + ")"
	}
	if s.Power.State == bmc.Unknown {
		return "Unknown (" + s.Power.Raw + ")"
	}
	return s.Power.State.String()
}
