package manifest

import (
	"fmt"

	"github.com/fenced/fenced/internal/policy"
)

// storm reads the state of the last storm from the check's status.
func storm(status object) (s policy.Storm) {
	for _, c := range conditions(status) {
		if c.Status != "True" {
			continue
		}
		switch c.Type {
		case stormCondition:
			s.Active = true
		case cooldownCondition:
			s.CooldownSince = c.LastTransition
		}
	}
	return s
}

// maxAttempts is how many bytes more are kept of a check for what it says of the Nodes that are unhealthy: in an
// outage that may be all of a cluster. Only an administrator writes a NodeHealthCheck.
const maxAttempts = 1 << 21

// attempts reads from the status which requests the check has made for Nodes that
// are still unhealthy, and which of them timed out.
func attempts(status object) map[string][]policy.Attempt {
	var all map[string][]policy.Attempt
	*status.left += maxAttempts
	for _, n := range status.children("unhealthyNodes") {
		for _, r := range n.children("remediations") {
			made := r.child("resource")
			if all == nil {
				all = map[string][]policy.Attempt{}
			}
			name := n.text("name")
			all[name] = append(all[name], policy.Attempt{
				APIVersion: made.text("apiVersion"), Kind: made.text("kind"), TemplateName: r.text("templateName"),
				Started: r.time("started"), TimedOut: r.time("timedOut"),
			})
		}
	}
	return all
}

// ClusterVersion decodes a config.openshift.io/v1 ClusterVersion: whether the
// cluster is being upgraded. One that cannot be read counts as an upgrade.
func ClusterVersion(fields map[string]any) (policy.Upgrade, error) {
	o := read(fields)
	var u policy.Upgrade
	_, name, _, _ := identify(o.child("metadata"), false)
	for _, c := range conditions(o.child("status")) {
		if c.Type == progressing && c.Status == "True" {
			u.Why = fmt.Sprintf("%s %s is %s", clusterVersionKind, name, progressing)
		}
	}
	err := o.err()
	if err != nil {
		u.Why = fmt.Sprintf("%s %s cannot be read", clusterVersionKind, name)
	}
	return u, err
}
