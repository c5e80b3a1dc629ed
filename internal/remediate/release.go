package remediate

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// mayReleasePods says whether the pods and VolumeAttachments of the isolated Node are to be
// deleted at once. The isolation must be on the record, the host must still be proven off by
// this process, and no kubelet may have registered since: a pod that is bound to the Node's name
// now was bound to the Node that was proven off. It delays On for no longer than the wait for
// the pods. // I1, I2, I7
func mayReleasePods(r Run, s Observation, now time.Time) bool {
	switch {
	case !r.Limits.ReleasePods, r.Isolated.IsZero(), r.Abandon != "", r.Target.NodeUID == "":
		return false
	case now.Sub(r.Isolated) >= max(r.Limits.PodsGoneTimeout, pauseBeforeOn), now.Sub(s.At) > freshFor:
		return false
	case s.Power.State != bmc.Off, !offProven(r, s, now), s.API != APIReachable, s.Paused, s.Contested != No:
		return false
	case !StillIsolated(r, s.Node), targetReplaced(r, s) != "": // I27
		return false
	}
	return s.PodsReleased == No || s.VolumesReleased == No
}

// StillIsolated says whether the Node is as the isolation left it: gone, or tainted and not
// booted since.
func StillIsolated(r Run, n Node) bool {
	if r.Isolation == IsolateTaint {
		return n.Exists == Yes && n.UID == r.Target.NodeUID && n.BootID == r.Target.BootID && n.OutOfService && !n.Deleting
	}
	return n.Exists == No
}
