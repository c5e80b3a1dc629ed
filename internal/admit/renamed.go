package admit

import (
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// cameBack says whether a Node with the UUID of a run's host has been heard of since
// the run began. A kubelet stands behind True and False. Unknown is said by the
// control plane, when it has heard nothing for a while: of a Node that was left behind
// by a renaming before the run, or of one that lived meanwhile, in another boot.
func cameBack(n *policy.Node, r remediate.Run) bool {
	otherBoot := n.BootID != "" && n.BootID != r.Target.BootID
	for _, c := range n.Conditions {
		if c.Type == "Ready" && c.Status != "True" && c.Status != "False" {
			return otherBoot && c.LastTransition.After(r.Started)
		}
		if c.Type == "Ready" {
			return true
		}
	}
	return otherBoot
}
