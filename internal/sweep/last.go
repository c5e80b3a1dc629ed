package sweep

import (
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
)

// LastChecks returns the result of the newest poll of each device of a host, so that explain and
// bmc list say the same. It returns nothing for a host that is not in the inventory yet.
func (s *Sweep) LastChecks(cluster, host string) (list []hosts.LastCheck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, entries := range s.hosts {
		if id.cluster != cluster || id.name != host {
			continue
		}
		for _, e := range entries {
			c := hosts.LastCheck{Level: e.id.level, Device: e.id.device, At: e.last.At, Power: e.last.Reading.State,
				Identity: e.last.Identity, UUID: e.last.Reading.Identity.UUID}
			if e.last.Identity != guard.IdentityDiffers && !c.At.IsZero() {
				c.Reason, c.Problem = failure(e.last)
			}
			list = append(list, c)
		}
	}
	return list
}
