package hosts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
)

// pins caches the pins of all hosts, and finds them by system UUID and by Secret. Whoever may
// write a Machine chooses which BareMetalHost it names, and need not be trusted with the power of
// any host either. // I10
type pins struct {
	mu     sync.Mutex
	byHost map[string]state.Pin       // by bmc.Host.Name
	hosts  map[string]map[string]bool // names of hosts, by what pinKeys returns
	// readError says which pins cannot be read, and unreadable has their hosts.
	readError  error
	unreadable map[string]bool
	// unsaved are the contradictions that are cached, and that the store does not have yet: the
	// machine on which the Node was seen, by host.
	unsaved map[string]string
}

func newPins() *pins {
	return &pins{byHost: map[string]state.Pin{}, hosts: map[string]map[string]bool{}, unsaved: map[string]string{}}
}

// load reads the stored pins. It remembers which cannot be read. An error means that the store
// could not be read at all.
func (p *pins) load(ctx context.Context, s state.Store) error {
	list, err := state.LoadPins(ctx, s)
	if list == nil && err != nil {
		return fmt.Errorf("load pins: %w", err)
	}
	var unreadable map[string]bool
	if err != nil {
		records, failed := s.List(ctx, state.KindPin)
		if failed != nil {
			return fmt.Errorf("load pins: %w", failed)
		}
		unreadable = hostsWithout(records, list)
	}
	for _, each := range list {
		p.put(each)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readError, p.unreadable = err, unreadable
	return nil
}

// hostsWithout returns the hosts of the records that are not among the pins.
func hostsWithout(records []state.Record, pins []state.Pin) map[string]bool {
	hosts := map[string]bool{}
	for _, r := range records {
		hosts[r.Key] = true
	}
	for _, each := range pins {
		delete(hosts, each.Host)
	}
	return hosts
}

// get returns the pin of a host. An error means that there is one, and it cannot be read.
func (p *pins) get(host string) (pin state.Pin, found bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unreadable[host] {
		return state.Pin{Host: host}, false, p.readError
	}
	if pin, found = p.byHost[host]; !found {
		pin.Host = host
	}
	return pin, found, nil
}

// unreadableError says which pins cannot be read; nil if all can.
func (p *pins) unreadableError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readError
}

// withSecret returns a host, other than the named ones, that was pinned with one of these
// Secrets. It is "" if none was.
func (p *pins) withSecret(secrets, names []string) (found string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, secret := range secrets {
		for host := range p.hosts[markSecret+secret] {
			if !slices.Contains(names, host) && (found == "" || host < found) {
				found = host
			}
		}
	}
	return found
}

// put caches a pin as it is stored, unless the cached one is newer. A contradiction that the
// store does not have yet stays, unless the pin is about the machine that contradicted.
func (p *pins) put(n state.Pin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known := p.byHost[n.Host]
	if known && old.Version > n.Version {
		return
	}
	if uuid, unsaved := p.unsaved[n.Host]; unsaved && n.Contradicted == "" && contradicts(n.SystemUUID, uuid) {
		n.Contradicted = old.Contradicted
	} else {
		delete(p.unsaved, n.Host)
	}
	for _, key := range pinKeys(old) {
		if delete(p.hosts[key], n.Host); len(p.hosts[key]) == 0 {
			delete(p.hosts, key)
		}
	}
	p.byHost[n.Host] = n
	for _, key := range pinKeys(n) {
		if p.hosts[key] == nil {
			p.hosts[key] = map[string]bool{}
		}
		p.hosts[key][n.Host] = true
	}
}

// contradict makes the cached pin of a host void, at once and whatever the store does. uuid is the
// machine on which the Node was seen. // I8
func (p *pins) contradict(host, uuid, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pin := p.byHost[host]
	if pin.Contradicted == "" && contradicts(pin.SystemUUID, uuid) {
		pin.Contradicted = why
		p.byHost[host], p.unsaved[host] = pin, uuid
	}
}

// supersede caches a pin as it is stored, whatever contradicted the one before.
func (p *pins) supersede(n state.Pin) {
	p.mu.Lock()
	delete(p.unsaved, n.Host)
	p.mu.Unlock()
	p.put(n)
}

// unsavedOf returns the cached pins of a cluster's hosts whose contradiction the store does not have
// yet.
func (p *pins) unsavedOf(cluster string) (list []state.Pin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for host := range p.unsaved {
		if of, _ := bmc.EntryOf(host); of == cluster {
			list = append(list, p.byHost[host])
		}
	}
	return list
}

// pinKeys are what a pin is found by: each form of the system UUID, and its Secrets.
func pinKeys(n state.Pin) []string {
	keys := bmc.UUIDForms(n.SystemUUID)
	for secret := range strings.SplitSeq(n.Secret, "\n") {
		if secret != "" {
			keys = append(keys, markSecret+secret)
		}
	}
	return keys
}

// underAnotherName returns the newest pin of the machine with this UUID under another name than
// that of the host. It finds none if one of them is for the devices that the host has now.
func (p *pins) underAnotherName(h bmc.Host, uuid string) (other state.Pin, found bool) {
	forms := bmc.UUIDForms(uuid)
	if len(forms) == 0 {
		return state.Pin{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.hosts[forms[0]] {
		each := p.byHost[name]
		switch {
		case name == h.Name || each.Address == "": // without an address: the pin of this daemon's own host
		case pinnedAmong(each, h):
			return state.Pin{}, false
		case !found || each.At.After(other.At):
			other, found = each, true
		}
	}
	return other, found
}

// pinnedHere reports whether a pin is about the very devices that the host has now. An older
// record lacks part of what chooses the devices. It is enough only if each device proves its
// identity. // I8
func pinnedHere(p state.Pin, h bmc.Host) bool {
	switch {
	case p.Choice != "":
		return p.Devices == devicesOf(h) && p.Choice == choiceOf(h)
	case !allIdentify(h):
		return false
	case p.Devices == "":
		return p.Address == h.Address()
	}
	return p.Devices == devicesOf(h)
}

// pinnedAmong reports whether all devices of a host are among those of a pin.
func pinnedAmong(p state.Pin, h bmc.Host) bool {
	if p.Devices == "" { // an older record
		return p.Address == h.Address()
	}
	known := strings.Split(p.Devices, "\n")
	return !slices.ContainsFunc(h.Keys(), func(key string) bool { return !slices.Contains(known, key) })
}
