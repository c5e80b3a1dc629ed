package sweep

import (
	"reflect"
	"slices"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
)

// subject is what is kept of a hosts.Subject that can be used. There may be a hundred thousand, so it shares what it can: the host with the
// inventory, and the Access of the devices with other hosts. It never changes.
type subject struct {
	cluster, node, machine, machineUID, bareMetalHost, systemUUID string

	bare     *bmc.Host // what its devices have as Access counts for nothing
	access   []bmc.Access
	withheld *reason.Refusal
	healthy  bool
	// asKept: what its devices have as Access does not matter to whether the host may be switched, nor to their assurance: all tell whose they are,
	// and no secret parameter has a part in what they switch.
	asKept   bool
	hardware *hardware
}

// hardware is what a BareMetalHost tells about a host.
type hardware struct {
	serial   string
	macs     []string
	sameMACs string
}

// noHardware is that of all hosts without one. Nobody changes it.
var noHardware = &hardware{}

// newSubject returns what is kept of a subject. others is the Access of another host, which this one shares if its own is the same.
func newSubject(s hosts.Subject, others []bmc.Access) *subject {
	x := &subject{
		cluster: s.Cluster, node: s.Node, machine: s.Machine, machineUID: s.MachineUID, bareMetalHost: s.BareMetalHost, systemUUID: s.SystemUUID,
		bare: s.Bare, access: s.Host.Accesses(), withheld: s.Withheld, healthy: s.Healthy, hardware: noHardware,
	}
	if s.Bare == nil || !s.Bare.SameButAccess(&s.Host) {
		own := s.Host
		x.bare = &own
	}
	x.asKept = s.Host.Identifies() && x.bare.Identifies() && !slices.ContainsFunc(x.access, func(a bmc.Access) bool { return len(a.SecretParameters) > 0 })
	if reflect.DeepEqual(x.access, others) {
		x.access = others
	}
	if s.Serial != "" || len(s.MACs) > 0 || s.SameMACs != "" {
		x.hardware = &hardware{s.Serial, s.MACs, s.SameMACs}
	}
	return x
}

// whole is the subject as the engine takes it.
func (x *subject) whole() hosts.Subject {
	return x.with(x.bare.WithAccesses(x.access))
}

// inQuestion is the subject as Forbidden takes it, which changes nothing in it. The devices of a hundred thousand are not copied for it.
func (x *subject) inQuestion() hosts.Subject {
	if x.asKept {
		return x.with(*x.bare)
	}
	return x.whole()
}

func (x *subject) with(h bmc.Host) hosts.Subject {
	return hosts.Subject{
		Cluster: x.cluster, Node: x.node, Machine: x.machine, MachineUID: x.machineUID, BareMetalHost: x.bareMetalHost, SystemUUID: x.systemUUID,
		Host: h, Bare: x.bare, Withheld: x.withheld, Healthy: x.healthy,
		Serial: x.hardware.serial, MACs: x.hardware.macs, SameMACs: x.hardware.sameMACs,
	}
}

// device is one device with its Access.
func (x *subject) device(id deviceID) bmc.Device {
	at := id.device
	for _, l := range x.bare.Levels[:id.level] {
		at += len(l.Devices)
	}
	return x.bare.Levels[id.level].Devices[id.device].With(x.access[at])
}

// kept is device, where its Access does not matter. Nobody changes it.
func (x *subject) kept(id deviceID) *bmc.Device {
	if x.asKept {
		return &x.bare.Levels[id.level].Devices[id.device]
	}
	d := x.device(id)
	return &d
}
