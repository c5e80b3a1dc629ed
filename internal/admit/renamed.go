package admit

import (
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// hasReturned says whether a Node with the UUID of a run's host shows that the host has
// registered since the run started. A kubelet writes Ready as True or False. The control plane writes
// Unknown when it gets no heartbeat. Such a Node may be left over from a renaming before the
// run. It counts only if it is of another boot and became Unknown after the run started.
func hasReturned(n *policy.Node, r remediate.Run) bool {
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
