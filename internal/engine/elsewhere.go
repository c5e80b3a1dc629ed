package engine

import (
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// elsewhere names another Node as which a run's host has come back, by its system
// UUID. unseen: the Nodes cannot be seen now, so nobody can say. // I6
func (c *cluster) elsewhere(r remediate.Run) (node string, unseen bool) {
	if !c.view().Synced {
		return "", true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.judged {
		return "", true
	}
	for _, form := range bmc.UUIDForms(r.Target.SystemUUID) { // none for a placeholder
		for _, n := range c.ledger.OtherNodesWithUUID(r.Target.Node, form) {
			if cameBack(n, r) {
				return n.Name, false
			}
		}
	}
	return "", false
}

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

// twin names another Node with this system UUID, in any byte order: a host that
// registered under a second name. c.mu is held. // I9
func (c *cluster) twin(node, uuid string) string {
	for _, form := range bmc.UUIDForms(uuid) {
		if other := c.ledger.OtherNodeWithUUID(node, form); other != "" {
			return "Node " + other + " has the same system UUID"
		}
	}
	return ""
}
