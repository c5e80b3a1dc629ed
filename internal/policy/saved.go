package policy

import (
	"maps"
	"slices"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// What saved objects show, and the daemon finds out another way: it reads medik8s' Leases past the cache, and
// compares hosts with its inventory and its pins.

// foreignLocks are the Leases on Nodes without those of the NodeHealthChecks whose requests fenced carries out.
// Such a check holds the Node for whoever does that. // I22
func foreignLocks(s *Snapshot) map[string]NodeLock {
	locks := maps.Clone(s.NodeLocks)
	for i := range s.Checks {
		if c := &s.Checks[i]; c.Kind == NodeHealthCheckKind && c.IsHandledByFenced() {
			maps.DeleteFunc(locks, func(_ string, l NodeLock) bool { return l.Holder == NodeCheckHolder+c.Name })
		}
	}
	return locks
}

// hostsByService are BareMetalHosts by the service that serves their BMC; nil if something else says where the BMC
// of a host is. One whose address cannot be used is not there.
type hostsByService map[string][]*Host

// hostsByService indexes the hosts, each list by name.
func (o *owners) hostsByService() hostsByService {
	x := hostsByService{}
	for _, name := range slices.Sorted(maps.Keys(o.hosts)) {
		if d, err := o.hosts[name].device(); err == nil {
			x[d.Service()] = append(x[d.Service()], o.hosts[name])
		}
	}
	return x
}

// refuse refuses to power-cycle a host by an address that cannot be used, or to which another BareMetalHost leads,
// too. Without an address the host may be in hosts.d.
func (x hostsByService) refuse(t *TargetReport, h *Host) {
	if h.Address == "" {
		return
	}
	d, err := h.device()
	if err != nil {
		t.refuseBecause(reason.InvalidHost, "BareMetalHost "+h.Key()+": "+err.Error())
		return
	}
	for _, o := range x[d.Service()] {
		if of, _ := o.device(); o.Key() != h.Key() && d.Overlaps(&of) { // I9
			t.refuseBecause(reason.DuplicateHost, "BareMetalHost "+o.Key()+" has the same BMC "+d.String()+" as "+h.Key())
			return
		}
	}
}

func (h *Host) device() (bmc.Device, error) {
	ep, err := bmc.ParseEndpoint(h.Address)
	return bmc.Device{Driver: bmc.Driver(ep.Protocol), Endpoint: ep}, err
}
