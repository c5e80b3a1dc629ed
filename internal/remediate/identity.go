package remediate

import (
	"cmp"

	"github.com/fenced/fenced/internal/bmc"
)

// A record names the objects that a run was decided on. A run may wait for hours, and meanwhile a
// name may go to another machine, the disks to another chassis, and a kubeconfig to another
// cluster. So nothing destructive is done unless a fresh look shows the objects of the record. // I2, I27

// withoutOtherCluster is the look without the answers of a cluster that is not the one in which the
// run began: that counts as an API server that cannot be reached. If the identity of the cluster
// could not be read, nothing that it answered counts, except our power lock, which must come off. So with a
// separate management cluster: its Machines, which end a run when they are gone.
func withoutOtherCluster(r Run, s Observation) Observation {
	if r.Target.ManagementUID != "" && s.ManagementUID == "" {
		s.Machine, s.MachineMetal = Machine{}, ""
	}
	switch {
	case isOtherCluster(r, s):
		s.API, s.OtherCluster, s.PowerLock, s.BareMetalHostUID = APIUnreachable, true, CannotTell, ""
	case r.Target.ClusterUID == "" || s.ClusterUID != "":
		return s
	case s.API == APIReachable:
		s.API = APIUnreachable
	}
	s.Node, s.Lease, s.Machine = Node{}, Lease{}, Machine{}
	s.Justified, s.Withdrawn, s.Quorum, s.Contested = CannotTell, CannotTell, CannotTell, CannotTell
	s.PodsGone, s.PodsReleased, s.VolumesReleased, s.Restored = CannotTell, CannotTell, CannotTell, CannotTell
	s.MachineMetal, s.RenamedTo, s.NodesUnseen, s.OwnerWantsOff = "", "", true, false
	s.ReadBack = nil
	return s
}

func isOtherCluster(r Run, s Observation) bool {
	other := func(began, seen string) bool { return began != "" && seen != "" && seen != began }
	return other(r.Target.ClusterUID, s.ClusterUID) || other(r.Target.ManagementUID, s.ManagementUID)
}

// TargetReplaced returns why a look does not show the objects of the record, or ""; for whoever
// admits a run or an order. // I2, I27
func TargetReplaced(r Run, s Observation) string {
	if isOtherCluster(r, s) {
		return "the kubeconfig leads to another cluster than the one in which the run began: point it to that cluster again"
	}
	return notAsRecorded(r, s)
}

// notAsRecorded returns why a look does not show that nothing has replaced an object of the record, or "".
func notAsRecorded(r Run, s Observation) string {
	n := s.Node
	if why := targetReplaced(r, s); why != "" || !n.registered() || !isUnknownMachine(r.Target, n) {
		return why
	}
	return "another Node " + r.Target.Node + " has registered, and no systemUUID tells whether it is of the machine of the run: it reports " + cmp.Or(n.SystemUUID, "none")
}

// targetReplaced returns which object of the record another one has replaced since, with its name; "" if
// a look shows none. What could not be read is left open. // I2, I27
func targetReplaced(r Run, s Observation) string {
	switch t := r.Target; {
	case isOtherMachine(t, s.Node):
		return "Node " + t.Node + " belongs to another machine now: its systemUUID is " + s.Node.SystemUUID + ", and the run is about " + cmp.Or(t.SystemUUID, t.ReportedUUID)
	case machineReplaced(r, s):
		return "Machine " + t.MachineKey() + " was deleted or replaced"
	case t.BareMetalHostUID != "" && s.PowerLock != CannotTell && s.BareMetalHostUID != t.BareMetalHostUID:
		return "BareMetalHost " + t.BareMetalHost + " was deleted or replaced"
	case t.Machine != "" && s.MachineMetal != "" && s.MachineMetal != t.BareMetalHost: // the owner of the host's power must know of the Off
		return "Machine " + t.MachineKey() + " names BareMetalHost " + s.MachineMetal + " now, and the run is about " + cmp.Or(t.BareMetalHost, "a host without one")
	}
	return ""
}

// machineReplaced says whether the Machine of a run is gone, or is another one of its name.
func machineReplaced(r Run, s Observation) bool {
	return r.Target.Machine != "" && (s.Machine.Exists == No || s.Machine.Exists == Yes && s.Machine.UID != r.Target.MachineUID)
}

// isOtherMachine says whether a Node says that it is of another machine than the target's. One that no
// kubelet has registered, and that tells no system UUID, says nothing. Where the target had no Node, what its BMC reported must agree. // I6, I8
func isOtherMachine(t Target, n Node) bool {
	switch {
	case n.Exists != Yes || n.BootID == "" && n.SystemUUID == "":
		return false
	case t.SystemUUID != "":
		return !sameUUID(t.SystemUUID, n.SystemUUID)
	}
	return otherThanReported(t, n)
}

// isUnknownMachine says whether nothing tells whose a Node is that is not the record's: several machines may have
// one placeholder of a system UUID, or none. One that no kubelet has registered yet is known later, if the
// target's machine has a UUID of its own. // I27
func isUnknownMachine(t Target, n Node) bool {
	own := cmp.Or(t.SystemUUID, t.ReportedUUID)
	known := !bmc.PlaceholderUUID(n.SystemUUID) && sameUUID(own, n.SystemUUID)
	return n.Exists == Yes && n.UID != t.NodeUID && !known && (n.registered() || bmc.PlaceholderUUID(own))
}

// isTargetMachine says whether a Node has the system UUID of the run's machine, if that is
// known. // I6
func isTargetMachine(t Target, n Node) bool {
	return t.SystemUUID == "" || sameUUID(t.SystemUUID, n.SystemUUID)
}

// isKnownMachine says whether a Node is that of the target: by the system UUID of its Node, or by
// that which the BMC reported of a Machine that had none. // I6
func isKnownMachine(t Target, n Node) bool {
	if t.SystemUUID == "" {
		return bmc.UUIDsMatch(t.ReportedUUID, n.SystemUUID)
	}
	return sameUUID(t.SystemUUID, n.SystemUUID)
}

// otherThanReported says whether the Node that registered for a target without one has another
// system UUID than its BMC reported. Not every BMC reports that of its host, so this is no proof
// of a false Off. // I6, I8
func otherThanReported(t Target, n Node) bool {
	return bmc.UsableUUID(t.ReportedUUID) && bmc.UsableUUID(n.SystemUUID) && !bmc.UUIDsMatch(t.ReportedUUID, n.SystemUUID)
}

// sameUUID says whether two system UUIDs are of one machine. A kernel update changes how the
// UUID is written: small letters, or another order of bytes.
func sameUUID(a, b string) bool { return a == b || bmc.UUIDsMatch(a, b) }

// registeredSinceIsolation says whether the present Node registered after the isolation.
func registeredSinceIsolation(r Run, n Node) bool {
	return n.Exists == Yes && n.BootID != "" && (r.Isolation == IsolateTaint || n.UID != r.Target.NodeUID)
}

const neverOffNote = "the Node registered again without a reboot: its host was never off"

// registeredWithoutReboot says whether the isolated Node registered again from the boot that ran before. A tainted Node stays: only Ready says
// that it runs. // I5, I6
func registeredWithoutReboot(r Run, n Node) bool {
	return registeredSinceIsolation(r, n) && isTargetMachine(r.Target, n) && n.BootID == r.Target.BootID && (r.Isolation == IsolateDelete || n.Ready == Yes)
}
