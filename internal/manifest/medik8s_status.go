package manifest

import (
	"fmt"

	"github.com/fenced/fenced/internal/policy"
)

// storm reads what the check's own status remembers of its last storm.
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

// tried reads which requests the check has made for Nodes that are not healthy
// again, and on which of them it gave up.
func tried(status object) map[string][]policy.Attempt {
	var all map[string][]policy.Attempt
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
// cluster is being upgraded. One that cannot be read may say so.
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
