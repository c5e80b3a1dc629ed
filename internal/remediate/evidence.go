package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
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
	since := times.Later(s.Proof.Since(), l.Seen) // while the API did not answer, nothing showed that it stood still
	return !recent || now.Sub(since) >= l.quietFor()
}

// recordOffLease keeps the Lease as it was at the first Off read of the present proof. A Lease that was
// noted before that, by a process before a restart or before a reading that was no Off, says
// nothing about what happened while this process read Off: the host may have been on in between. // I5
func recordOffLease(r Run, s Observation, now time.Time) Run {
	switch off := s.Power.State == bmc.Off; {
	case s.Power.State == bmc.On, !off && leaseAdvanced(r, s):
		r.OffLease = nil
	case off && s.Lease.Known && (r.OffLease == nil || leaseAdvanced(r, s) || r.OffLease.Seen.Before(s.Proof.Since())):
		renewed := leaseAdvanced(r, s)
		r.OffLease = s.Lease.seenAt(now)
		r.OffLease.KubeletReporting = r.OffLease.KubeletReporting || renewed // whatever the host's clock wrote into it
		r.OffLease.BootID, r.OffLease.Unregistered = s.Node.BootID, renewed && s.Node.Exists != CannotTell && !s.Node.registered()
	}
	return r
}

// falseOffReason returns why the Off that this process reads is false, or "". A false Off freezes a BMC,
// so it is only what cannot be anything else: the boot of the first Off read of this proof lives on,
// or the target's kubelet registered after that read. Another machine may have taken the name, and
// somebody may have switched the host on since an older Off. // I5
func falseOffReason(r Run, s Observation) string {
	n, since := s.Node, s.Proof.Since()
	unknown := n.registered() && isUnknownMachine(r.Target, n) && n.BootID != r.Target.BootID // a boot is of one machine
	if s.Power.State != bmc.Off || since.IsZero() || isOtherMachine(r.Target, n) || unknown {
		return ""
	}
	if leaseAdvanced(r, s) && !r.OffLease.Seen.Before(since) {
		// A kubelet that has no Node may be another machine's, which registers in the next moment.
		if n.registered() && n.BootID == r.OffLease.BootID || !n.registered() && n.Exists != CannotTell && r.OffLease.Unregistered {
			return "the Node's Lease was renewed although the BMC says Off"
		}
	}
	if n.registered() && n.UID != r.Target.NodeUID && s.Clock == Yes && n.Created.Sub(since) > clockRounding {
		return "a Node of this name registered although the BMC says Off"
	}
	return ""
}

// leaseAdvanced says whether the Lease advanced since the one that the record keeps: what was proven then
// must be proven again. // I5
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
