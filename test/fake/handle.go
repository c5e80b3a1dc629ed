package fake

import (
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// Handle is one host with its Node, as a test looks at it and changes it: each method
// holds the lock of the cluster.
type Handle struct {
	c    *Cluster
	name string
}

// Handle is that of a host.
func (c *Cluster) Handle(name string) *Handle { return &Handle{c, name} }

func (h *Handle) do(f func(s *State, host *Host)) {
	h.c.Do(func(s *State) { f(s, s.Host(h.name)) })
}

func get[T any](h *Handle, f func(s *State, host *Host) T) (v T) {
	h.do(func(s *State, host *Host) { v = f(s, host) })
	return v
}

// On says whether the host is on.
func (h *Handle) On() bool { return get(h, func(_ *State, host *Host) bool { return host.On }) }

// Ready says whether its Node is.
func (h *Handle) Ready() bool {
	return get(h, func(s *State, _ *Host) bool { return s.Nodes[h.name] != nil && s.Nodes[h.name].Ready == "True" })
}

// ReadyFor is for how long its Node has been Ready; zero: it is not.
func (h *Handle) ReadyFor() (d time.Duration) {
	h.do(func(s *State, _ *Host) {
		if n := s.Nodes[h.name]; n != nil && n.Ready == "True" {
			d = time.Since(n.Since)
		}
	})
	return d
}

// Restored says whether its Node has all that its owner gave it.
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

// Commands are those that its BMC was given.
func (h *Handle) Commands() []bmc.Command {
	return get(h, func(_ *State, host *Host) []bmc.Command { return slices.Clone(host.BMC.commands) })
}

// Count is how many of them were such a command.
func (h *Handle) Count(c bmc.Command) (n int) {
	for _, each := range h.Commands() {
		if each == c {
			n++
		}
	}
	return n
}

// SetPower switches the host by another hand.
func (h *Handle) SetPower(on bool) {
	h.do(func(_ *State, host *Host) { host.Power(on, "another hand") })
}

// SetReady turns the Ready condition of the Node, whatever the kubelet does.
func (h *Handle) SetReady(status string) {
	h.do(func(s *State, _ *Host) { s.SetReady(h.name, status) })
}

// SetReadySince has the Ready condition turned some time ago.
func (h *Handle) SetReadySince(status string, at time.Time) {
	h.do(func(s *State, _ *Host) { s.ChangeNode(h.name, func(n *Node) { n.Ready, n.Since = status, at }) })
}

// Hang hangs the kernel; the control plane has just given its kubelet up.
func (h *Handle) Hang() {
	h.do(func(s *State, host *Host) {
		host.Hang(time.Time{})
		s.renew(h.name, time.Now().Add(-leaseGrace))
		s.SetReady(h.name, "Unknown")
	})
}

// Recover has the kernel go on, and the Node Ready again.
func (h *Handle) Recover() {
	h.do(func(s *State, host *Host) {
		host.Kernel = Runs
		s.renew(h.name, time.Now())
		s.SetReady(h.name, "True")
	})
}

// SetLeaseMoving has the Lease renewed each second, or not any more.
func (h *Handle) SetLeaseMoving(on bool) { h.do(func(_ *State, host *Host) { host.LeaseMoves = on }) }

// SetBootTime is how long a boot takes from now on, also one that is under way.
func (h *Handle) SetBootTime(d time.Duration) {
	h.do(func(_ *State, host *Host) {
		host.BootTime, host.UpAt = func() time.Duration { return d }, time.Now().Add(d)
	})
}

// RemoveNode deletes the Node, by whomever.
func (h *Handle) RemoveNode() { h.do(func(s *State, _ *Host) { s.RemoveNode(h.name) }) }

// FailReads has every reading of the BMC end with an error; nil: none does.
func (h *Handle) FailReads(err error) { h.do(func(_ *State, host *Host) { host.BMC.Fails = err }) }

// SetFault has the BMC misbehave.
func (h *Handle) SetFault(f Fault) {
	h.do(func(_ *State, host *Host) { host.BMC.SetFault(f, time.Now()) })
}

// SetBMCUUID has the BMC tell a UUID, whosever it is.
func (h *Handle) SetBMCUUID(uuid string) { h.do(func(_ *State, host *Host) { host.BMC.UUID = &uuid }) }

// Entry is that of hosts.d.
func (h *Handle) Entry() bmc.Host {
	return get(h, func(s *State, _ *Host) bmc.Host { return cloned(s.Entries[h.name]) })
}

// ChangeEntry changes the entry of hosts.d, or makes it.
func (h *Handle) ChangeEntry(change func(*bmc.Host)) {
	h.do(func(s *State, _ *Host) {
		e := cloned(s.Entries[h.name])
		change(&e)
		s.Entries[h.name] = e
	})
}

// DropEntry takes it away.
func (h *Handle) DropEntry() { h.do(func(s *State, _ *Host) { delete(s.Entries, h.name) }) }

// cloned is an entry of which levels and devices may be changed: what somebody has
// found before stays as it was.
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

// NotReady is how many hosts have no Node that is Ready.
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

// MostOff is how many hosts of a zone were off at once, at most; those of "all" are all.
func (c *Cluster) MostOff(zone string) (n int) {
	c.Do(func(s *State) { n = s.mostOff[zone] })
	return n
}
