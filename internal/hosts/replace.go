package hosts

import (
	"context"
	"sync/atomic"
)

// listed is the present content of hosts.d: a reload replaces the whole of it at once.
type listed struct{ now atomic.Pointer[Inventory] }

func (l *listed) inventory() Inventory { return *l.now.Load() }

// ReplaceInventory takes in another content of hosts.d. The index has a new entry before
// anybody can use it, and loses a removed one after that, so that two hosts on one machine are
// noticed. A run keeps the devices that it began with, and is refused others. // I9, I10
func (h *Hosts) ReplaceInventory(ctx context.Context, next Inventory) {
	gone := h.catalog.index.listed()
	for cluster := range h.clusters.All() {
		for _, name := range h.putEntries(ctx, next, cluster) {
			delete(gone, name)
		}
	}
	h.listed.now.Store(&next)
	for name := range gone {
		h.catalog.index.drop(name)
	}
	h.wakeAll()
}

// putEntries indexes the administrator's hosts of one cluster, and returns their names there.
func (h *Hosts) putEntries(ctx context.Context, from Inventory, cluster string) (names []string) {
	for _, of := range from.List(cluster) {
		if entry, found, err := from.Find(ctx, cluster, of); found && err == nil { // another entry is refused when it is used
			h.catalog.index.put(newEntry(cluster, withoutAccounts(entry), hostEntry{name: entry.Name, source: entry.Source, listed: true}))
			names = append(names, entry.Name)
		}
	}
	return names
}

// listed returns the names of the hosts that are in hosts.d.
func (x *index) listed() map[string]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := map[string]bool{}
	for name, e := range x.byName {
		if e.listed {
			names[name] = true
		}
	}
	return names
}
