package fake

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// Handle is one host with its Node, for tests to read and change. Each method
// takes the lock of the cluster.
type Handle struct {
	c    *Cluster
	name string
}

func (c *Cluster) Handle(name string) *Handle { return &Handle{c, name} }

func (h *Handle) do(f func(s *State, host *Host)) {
	h.c.Do(func(s *State) { f(s, s.Host(h.name)) })
}

func get[T any](h *Handle, f func(s *State, host *Host) T) (v T) {
	h.do(func(s *State, host *Host) { v = f(s, host) })
	return v
}

// On reports whether the host is on.
func (h *Handle) On() bool { return get(h, func(_ *State, host *Host) bool { return host.On }) }

// Ready reports whether its Node is Ready.
func (h *Handle) Ready() bool {
	return get(h, func(s *State, _ *Host) bool { return s.Nodes[h.name] != nil && s.Nodes[h.name].Ready == "True" })
}

// ReadyFor is how long its Node has been Ready; zero if it is not.
func (h *Handle) ReadyFor() (d time.Duration) {
	h.do(func(s *State, _ *Host) {
		if n := s.Nodes[h.name]; n != nil && n.Ready == "True" {
			d = time.Since(n.Since)
		}
	})
	return d
}

// Restored reports whether its Node has everything that its owner gave it.
func (h *Handle) Restored() bool {
	return get(h, func(s *State, host *Host) bool {
		return s.Nodes[h.name] != nil && len(s.Nodes[h.name].Lacks(host)) == 0
	})
}

// Isolations is how often its Node was deleted for isolation.
func (h *Handle) Isolations() int {
	return get(h, func(_ *State, host *Host) int { return host.Isolated })
}

// Reads is how often its BMC was read.
func (h *Handle) Reads() int { return get(h, func(_ *State, host *Host) int { return host.BMC.reads }) }

func (h *Handle) Commands() []bmc.Command {
	return get(h, func(_ *State, host *Host) []bmc.Command { return slices.Clone(host.BMC.commands) })
}

// Count is how often the BMC received the command c.
func (h *Handle) Count(c bmc.Command) (n int) {
	for _, each := range h.Commands() {
		if each == c {
			n++
		}
	}
	return n
}

// SetPower switches the host, as somebody other than fenced would.
func (h *Handle) SetPower(on bool) {
	h.do(func(_ *State, host *Host) { host.Power(on, "another hand") })
}

// SetReady changes the Ready condition of the Node, whatever the kubelet does.
func (h *Handle) SetReady(status string) {
	h.do(func(s *State, _ *Host) { s.SetReady(h.name, status) })
}

// SetReadySince changes the Ready condition with a transition time in the past.
func (h *Handle) SetReadySince(status string, at time.Time) {
	h.do(func(s *State, _ *Host) { s.ChangeNode(h.name, func(n *Node) { n.Ready, n.Since = status, at }) })
}

// Hang hangs the kernel. The control plane has just set Ready=Unknown.
func (h *Handle) Hang() {
	h.do(func(s *State, host *Host) {
		host.Hang(time.Time{})
		s.renew(h.name, time.Now().Add(-leaseGrace))
		s.SetReady(h.name, "Unknown")
	})
}

// Recover makes the kernel continue, and the Node Ready again.
func (h *Handle) Recover() {
	h.do(func(s *State, host *Host) {
		host.Kernel = Runs
		s.renew(h.name, time.Now())
		s.SetReady(h.name, "True")
	})
}

// SetLeaseMoving makes the Lease be renewed each second, or stops that.
func (h *Handle) SetLeaseMoving(on bool) { h.do(func(_ *State, host *Host) { host.LeaseMoves = on }) }

// SetBootTime sets how long a boot takes, including a boot in progress.
func (h *Handle) SetBootTime(d time.Duration) {
	h.do(func(_ *State, host *Host) {
		host.BootTime, host.UpAt = func() time.Duration { return d }, time.Now().Add(d)
	})
}

// RemoveNode deletes the Node, as anybody might.
func (h *Handle) RemoveNode() { h.do(func(s *State, _ *Host) { s.RemoveNode(h.name) }) }

// FailReads makes every reading of the BMC fail with err; nil ends that.
func (h *Handle) FailReads(err error) { h.do(func(_ *State, host *Host) { host.BMC.Fails = err }) }

// SetFault makes the BMC misbehave.
func (h *Handle) SetFault(f Fault) {
	h.do(func(_ *State, host *Host) { host.BMC.SetFault(f, time.Now()) })
}

// SetBMCUUID makes the BMC report a UUID.
func (h *Handle) SetBMCUUID(uuid string) { h.do(func(_ *State, host *Host) { host.BMC.UUID = &uuid }) }

// SetBMCSerial makes the BMC report this serial number.
func (h *Handle) SetBMCSerial(serial string) {
	h.do(func(_ *State, host *Host) { host.BMC.Serial = serial })
}

// Entry is the host's entry in hosts.d.
func (h *Handle) Entry() bmc.Host {
	return get(h, func(s *State, _ *Host) bmc.Host { return cloned(s.Entries[h.name]) })
}

// ChangeEntry changes the entry in hosts.d, or creates it.
func (h *Handle) ChangeEntry(change func(*bmc.Host)) {
	h.do(func(s *State, _ *Host) {
		e := cloned(s.Entries[h.name])
		change(&e)
		s.Entries[h.name] = e
	})
}

// DropEntry removes the entry in hosts.d.
func (h *Handle) DropEntry() { h.do(func(s *State, _ *Host) { delete(s.Entries, h.name) }) }

// cloned returns a copy of an entry with its levels and devices, so that changing
// it does not change what others have read.
func cloned(e bmc.Host) bmc.Host {
	e.Levels = slices.Clone(e.Levels)
	for i := range e.Levels {
		e.Levels[i].Devices = slices.Clone(e.Levels[i].Devices)
	}
	return e
}

// HandedOver is how many Machines were handed over to their owners.
func (c *Cluster) HandedOver() (n int) { c.Do(func(s *State) { n = s.marked }); return n }

// Deprovisioned are the hosts whose Machines fenced deleted, in that order.
func (c *Cluster) Deprovisioned() (hosts []string) {
	c.Do(func(s *State) { hosts = slices.Clone(s.deprovisioned) })
	return hosts
}

// NotReady is how many hosts have no Ready Node.
func (c *Cluster) NotReady() (n int) {
	c.Do(func(s *State) {
		for _, h := range s.Hosts {
			if node := s.Nodes[h.Name]; node == nil || node.Ready != "True" {
				n++
			}
		}
	})
	return n
}

// MostOff is the greatest number of hosts of a zone that were off at the same
// time; zone "all" means all hosts.
func (c *Cluster) MostOff(zone string) (n int) {
	c.Do(func(s *State) { n = s.mostOff[zone] })
	return n
}
