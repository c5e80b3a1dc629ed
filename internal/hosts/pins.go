package hosts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
)

// pins finds, by system UUID and by Secret, where machines were pinned: whoever may write a
// Machine chooses which BareMetalHost it names, and is not trusted with the power
// of any host either. // I10
type pins struct {
	mu    sync.Mutex
	hosts map[string]state.Pin       // by bmc.Host.Name
	by    map[string]map[string]bool // host names, by what foundBy gives
	// damage names the pins that could not be read, damaged are their hosts.
	damage  error
	damaged map[string]bool
	doubts  doubts
}

func newPins() *pins {
	return &pins{hosts: map[string]state.Pin{}, by: map[string]map[string]bool{}}
}

// load reads what is stored. Pins that cannot be read are remembered as damage; an
// error means that none could be asked for.
func (p *pins) load(ctx context.Context, s state.Store) error {
	list, err := state.LoadPins(ctx, s)
	if list == nil && err != nil {
		return fmt.Errorf("load pins: %w", err)
	}
	var bad map[string]bool
	if err != nil {
		records, failed := s.List(ctx, state.KindPin)
		if failed != nil {
			return fmt.Errorf("load pins: %w", failed)
		}
		bad = unread(records, list)
	}
	for _, each := range list {
		p.put(each)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.damage, p.damaged = err, bad
	return nil
}

// unread are the hosts of the records that are not among the pins that were read.
func unread(records []state.Record, pins []state.Pin) map[string]bool {
	bad := map[string]bool{}
	for _, r := range records {
		bad[r.Key] = true
	}
	for _, each := range pins {
		delete(bad, each.Host)
	}
	return bad
}

// get is the pin of a host; an error when there is one that cannot be read.
func (p *pins) get(host string) (pin state.Pin, found bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.damaged[host] {
		return state.Pin{Host: host}, false, p.damage
	}
	if pin, found = p.hosts[host]; !found {
		pin.Host = host
	}
	return pin, found, nil
}

// broken says what pins could not be read; nil when all could.
func (p *pins) broken() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.damage
}

// named gives a pinned host, other than the named ones, that had one of these Secrets; ""
// when none had.
func (p *pins) named(secrets, names []string) (found string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, secret := range secrets {
		for host := range p.by[inSecret+secret] {
			if !slices.Contains(names, host) && (found == "" || host < found) {
				found = host
			}
		}
	}
	return found
}

// put notes a pin as it was stored.
func (p *pins) put(n state.Pin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known := p.hosts[n.Host]
	if known && old.Version > n.Version {
		return
	}
	for _, key := range foundBy(old) {
		if delete(p.by[key], n.Host); len(p.by[key]) == 0 {
			delete(p.by, key)
		}
	}
	p.hosts[n.Host] = n
	for _, key := range foundBy(n) {
		if p.by[key] == nil {
			p.by[key] = map[string]bool{}
		}
		p.by[key][n.Host] = true
	}
}

// foundBy are the keys of a pin: each form of the UUID, and its Secrets.
func foundBy(n state.Pin) []string {
	keys := bmc.UUIDForms(n.SystemUUID)
	for secret := range strings.SplitSeq(n.Secret, "\n") {
		if secret != "" {
			keys = append(keys, inSecret+secret)
		}
	}
	return keys
}

// elsewhere gives a pin of the machine with this UUID under another name than the
// host's, unless one of them was for the devices that the host has.
func (p *pins) elsewhere(h bmc.Host, uuid string) (other state.Pin, found bool) {
	forms := bmc.UUIDForms(uuid)
	if len(forms) == 0 {
		return state.Pin{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.by[forms[0]] {
		each := p.hosts[name]
		switch {
		case name == h.Name || each.Address == "": // the latter is this daemon's own host
		case pinnedAmong(each, h):
			return state.Pin{}, false
		case !found || each.At.After(other.At):
			other, found = each, true
		}
	}
	return other, found
}

// pinnedAmong says whether all devices of a host are among those of a pin.
func pinnedAmong(p state.Pin, h bmc.Host) bool {
	if p.Devices == "" { // an older record
		return p.Address == h.Address()
	}
	known := strings.Split(p.Devices, "\n")
	return !slices.ContainsFunc(h.Keys(), func(key string) bool { return !slices.Contains(known, key) })
}

// putPin writes a pin durably and then makes it what others see. Where another stands
// by now, that one is: it may be this very pin, of a write that was not answered.
func (c *Cluster) putPin(ctx context.Context, p state.Pin) (state.Pin, error) {
	saved, err := state.SavePin(ctx, c.opt.Lead.Store(), p)
	if err == nil {
		c.hosts.pins.put(saved)
	} else if errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrExists) {
		if stood, unread := state.LoadPin(ctx, c.opt.Lead.Store(), p.Host); unread == nil {
			c.hosts.pins.put(stood)
		}
	}
	return saved, err
}
