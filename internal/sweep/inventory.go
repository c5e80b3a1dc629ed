package sweep

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
)

// updateInventory replaces the inventory. It ignores a host without a BMC, as in
// a cloud.
func (s *Sweep) updateInventory(all []hosts.Subject, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inventoryRead, s.unusable = true, nil
	there := map[hostID]bool{}
	for _, subject := range all {
		switch r, refused := errors.AsType[*reason.Refusal](subject.Err); {
		case subject.Err == nil:
			there[idOf(subject)] = true
			s.updateHost(subject, now)
		case !refused || r.Reason != reason.NoHost:
			s.unusable = append(s.unusable, subject)
		}
	}
	for id, list := range s.hosts {
		if !there[id] {
			drop(list)
			delete(s.hosts, id)
		}
	}
	s.plan.forget(now)
	s.forgetAccounts(now)
}

// isUnsyncedCluster reports whether a subject stands for a whole cluster that has
// not been read yet.
func isUnsyncedCluster(subject hosts.Subject) bool {
	r, ok := errors.AsType[*reason.Refusal](subject.Err)
	return ok && r.Reason == reason.NotSynced
}

func idOf(subject hosts.Subject) hostID {
	return hostID{subject.Cluster, subject.Host.Name, subject.Node}
}

// updateHost keeps the records of a host's unchanged devices, and plans polls of
// the others, spread over the interval. The caller holds mu.
func (s *Sweep) updateHost(subject hosts.Subject, now time.Time) []*entry {
	known := map[deviceID]*entry{}
	for _, e := range s.hosts[idOf(subject)] {
		known[e.id] = e
	}
	var list []*entry
	for i, l := range subject.Host.Levels {
		for j, d := range l.Devices {
			id := deviceID{level: i, device: j}
			e := known[id]
			if e == nil || !sameDevice(e.device(), d) {
				e = &entry{id: id, service: d.Service(), place: -1, auditDue: now.Add(rand.N(firstAudit))}
				if s.opt.Every > 0 {
					s.plan.add(e, now.Add(rand.N(s.opt.Every)))
				}
			} else {
				delete(known, id)
				s.newCredentials(e, d, now)
			}
			e.subject = subject
			list = append(list, e)
		}
	}
	for _, e := range known {
		e.gone = true
	}
	s.hosts[idOf(subject)] = list
	return list
}

// newCredentials polls soon whether corrected credentials are accepted.
func (s *Sweep) newCredentials(e *entry, d bmc.Device, now time.Time) {
	if old := e.device(); old.Username != d.Username || old.Password.Reveal() != d.Password.Reveal() {
		s.plan.bringForward(e, now)
	}
}

// sameDevice reports whether the record of one device also applies to the other.
func sameDevice(a, b bmc.Device) bool {
	return a.Driver == b.Driver && a.String() == b.String() && a.Key() == b.Key()
}

func drop(list []*entry) {
	for _, e := range list {
		e.gone = true
	}
}
