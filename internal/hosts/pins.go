package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/state"
)

// pins caches the pins of all hosts, and finds them by system UUID and by Secret. Whoever may
// write a Machine chooses which BareMetalHost it names, and need not be trusted with the power of
// any host either. // I10
type pins struct {
	reading *semaphore.Weighted // one read at a time

	mu     sync.Mutex
	byHost map[string]state.Pin // by bmc.Host.Name
	hosts  map[string][]string  // names of hosts, by what pinKeys returns
	// readError says which pins cannot be read, and unreadable has their hosts.
	readError  error
	unreadable map[string]bool
	// readTo is the largest version that a read found; 0 before one found all readable.
	readTo uint64
	// unsaved are the contradictions that are cached, and that the store does not have yet: the
	// machine on which the Node was seen, by host.
	unsaved map[string]string
}

func newPins() *pins {
	return &pins{reading: semaphore.NewWeighted(1), byHost: map[string]state.Pin{}, hosts: map[string][]string{}, unsaved: map[string]string{}}
}

// LoadPins reads what was pinned and enrolled, and remembers which pins cannot be read. An error
// means that the store could not be read at all. It reads only what has changed since it read all, if the store can tell: a pin is
// replaced and never deleted, and a hundred thousand take seconds.
func (h *Hosts) LoadPins(ctx context.Context, s state.Store) error {
	p := h.catalog.pins
	if err := p.reading.Acquire(ctx, 1); err != nil { // an older read must not have the last word about which cannot be read
		return fmt.Errorf("load pins: %w", err)
	}
	defer p.reading.Release(1)
	p.mu.Lock()
	after := p.readTo
	p.mu.Unlock()
	list, err := state.LoadPins(ctx, s, after)
	if after > 0 && err != nil && ctx.Err() == nil { // which of all pins cannot be read, or the store cannot tell what has changed
		list, err = state.LoadPins(ctx, s, 0)
	}
	if list == nil && err != nil {
		return fmt.Errorf("load pins: %w", err)
	}
	unreadable := map[string]bool{}
	if err != nil {
		records, failed := s.List(ctx, state.KindPin)
		if failed != nil {
			return fmt.Errorf("load pins: %w", failed)
		}
		for _, r := range records {
			unreadable[r.Key] = true
		}
	}
	for _, each := range list {
		delete(unreadable, each.Host)
		p.put(each)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readError, p.unreadable = err, unreadable
	if err != nil {
		p.readTo = 0
		return nil
	}
	for i := range list {
		p.readTo = max(p.readTo, list[i].Version)
	}
	return nil
}

// UnreadablePins says which pins LoadPins could not read; nil if it could read all.
func (h *Hosts) UnreadablePins() error { return h.catalog.pins.unreadableError() }

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
		for _, host := range p.hosts[pinnedSecret+secret] {
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
	p.byHost[n.Host] = n
	before, after := pinKeys(old), pinKeys(n)
	if slices.Equal(before, after) { // as mostly: a Secret may have a hundred thousand hosts
		return
	}
	for _, key := range before {
		p.hosts[key] = slices.DeleteFunc(p.hosts[key], func(host string) bool { return host == n.Host })
		if len(p.hosts[key]) == 0 {
			delete(p.hosts, key)
		}
	}
	for _, key := range after {
		p.hosts[key] = append(p.hosts[key], n.Host)
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

// pinnedSecret is before a Secret in pins.hosts.
const pinnedSecret = "in"

// pinKeys are what a pin is found by: each form of the system UUID, and its Secrets.
func pinKeys(n state.Pin) []string {
	keys := bmc.UUIDForms(n.SystemUUID)
	for secret := range strings.SplitSeq(n.Secret, "\n") {
		if secret != "" {
			keys = append(keys, pinnedSecret+secret)
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
	for _, name := range p.hosts[forms[0]] {
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

// pinnedHere reports whether a pin is about the very devices that the host has now. // I8
func pinnedHere(p state.Pin, h bmc.Host) bool {
	return p.Devices == devicesOf(h) && p.Choice == choiceOf(h)
}

// pinnedAmong reports whether all devices of a host are among those of a pin.
func pinnedAmong(p state.Pin, h bmc.Host) bool {
	known := strings.Split(p.Devices, "\n")
	return !slices.ContainsFunc(h.Keys(), func(key string) bool { return !slices.Contains(known, key) })
}

// pinWriter stores the pins of one cluster's hosts, as long as this instance owns the cluster.
type pinWriter struct {
	cluster string
	lead    Lead
	view    View
	catalog *catalog
	emit    func(event.Event)
}

// save stores a pin, and then caches it. supersedes says that it is newer evidence than what
// contradicted the cached one. If another pin is stored by now, save caches that one: it may be this
// very pin, from a write that the store did not answer.
func (w *pinWriter) save(ctx context.Context, p state.Pin, supersedes bool) (state.Pin, error) {
	saved, err := state.SavePin(ctx, w.lead.Store(), p)
	switch {
	case err == nil && supersedes:
		w.catalog.pins.supersede(saved)
	case err == nil:
		w.catalog.pins.put(saved)
	case isConflict(err):
		if stored, readError := state.LoadPin(ctx, w.lead.Store(), p.Host); readError == nil {
			w.catalog.pins.put(stored)
		}
	}
	return saved, err
}

// isConflict reports whether another goroutine or instance wrote the record first.
func isConflict(err error) bool {
	return errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrExists)
}

// update stores next if it differs from the old pin. A pin that another goroutine has just written
// stays as it is.
func (w *pinWriter) update(ctx context.Context, old, next state.Pin, at time.Time) error {
	if next.At = old.At; next == old {
		return nil
	}
	next.At = at.UTC()
	if _, err := w.save(ctx, next, old.Contradicted != ""); !isConflict(err) {
		return err
	}
	return nil
}

// healthy stores that a healthy Node and the first device of its host match, if something about
// that is new. What contradicted an older pin is over.
func (w *pinWriter) healthy(ctx context.Context, k Checked, d bmc.Device, old state.Pin) error {
	s, h, next := k.Subject, k.Subject.Host, old
	if !pinnedHere(old, h) {
		next = state.Pin{Host: h.Name, Version: old.Version} // nobody has enrolled these devices
	}
	next.Contradicted = ""
	if contradicts(old.SystemUUID, s.SystemUUID) { // it is that of the former board
		next.Serial = ""
	}
	next.Node, next.SystemUUID, next.MachineUID = s.Node, s.SystemUUID, pinnedMachine(h.Name, s.MachineUID)
	next.Address, next.Devices, next.Choice = h.Address(), devicesOf(h), choiceOf(h)
	next.Secret = strings.Join(secretsOf(w.cluster, &h), "\n")
	if class := w.catalog.index.get(h.Name).class(); class != "" {
		next.Class = class
	}
	if d.Identifies() {
		next.BMCUUID = k.Reading.Identity.UUID
		if bmc.UsableSerial(k.Reading.Identity.Serial) {
			next.Serial = k.Reading.Identity.Serial
		}
	}
	if next.EnrolledBy != "" { // the enrolment stays; only what an older one lacks is added
		next.SystemUUID, next.BMCUUID, next.Secret, next.Contradicted = old.SystemUUID, old.BMCUUID, cmp.Or(old.Secret, next.Secret), old.Contradicted
	}
	return w.update(ctx, old, next, k.At)
}

// A pin or an enrolment says which machine a host is. If its Node is seen on another machine, that
// is void: the BMC still leads to the old machine, which may be anything by now. As long as the
// Node exists, its system UUID shows that. When it is gone, only the record does. // I8, I10
//
// One sight is enough, of a Node that need not be Ready: kubelets report it over an authenticated
// connection, and nothing is lost if it was wrong. The evidence counts again as soon as a health
// check finds the Node Ready on its machine.

// compareNode makes what is stored about the hosts of a Node void if the Node is on another machine.
// A BareMetalHost counts only if the pin is of this Node: whoever may write a Machine chooses which
// BareMetalHost is said to be the host of a Node.
func (w *pinWriter) compareNode(n *policy.Node) {
	if n == nil || !bmc.UsableUUID(n.SystemUUID) {
		return
	}
	t, _ := w.view.TargetOn(n.Name)
	t.Node = n.Name
	for _, host := range names(w.cluster, t) {
		p, found, err := w.catalog.pins.get(host)
		isMetal := t.BareMetalHost != "" && host == w.cluster+"/"+t.BareMetalHost
		if err != nil || !found || !contradicts(p.SystemUUID, n.SystemUUID) || isMetal && p.Node != "" && p.Node != n.Name {
			continue
		}
		w.catalog.pins.contradict(host, n.SystemUUID, fmt.Sprintf("Node %s was seen on the machine %s, and %s was pinned or enrolled for %s; "+
			"that counts again when the Node is Ready on that machine, or after fencectl bmc enroll", n.Name, n.SystemUUID, host, p.SystemUUID))
	}
}

// saveContradictions stores what is void and not stored yet. Each health check tries it again.
func (w *pinWriter) saveContradictions(ctx context.Context) {
	for _, p := range w.catalog.pins.unsavedOf(w.cluster) {
		switch _, err := w.save(ctx, p, false); {
		case isConflict(err), err != nil && ctx.Err() != nil:
		case err != nil:
			w.emit(event.Event{Type: event.Failed, Node: p.Node, Message: "store that an identity is contradicted: " + err.Error()})
		default:
			w.emit(event.Event{Type: event.Refused, Node: p.Node, Reason: reason.IdentityMismatch, Message: p.Contradicted})
			w.view.Wake()
		}
	}
}

// enrolmentHolds reports whether an enrolment that was contradicted counts again: its Node is Ready
// on the machine that it is for.
func (w *pinWriter) enrolmentHolds(k Checked, p state.Pin) bool {
	return p.EnrolledBy != "" && p.Contradicted != "" && k.Subject.Healthy && k.Identity != guard.IdentityDiffers && w.isNodeOn(k.Subject, p.SystemUUID)
}

// isNodeOn reports whether the watch shows the Node of a subject on a machine now. The subject of a
// health check may be minutes old.
func (w *pinWriter) isNodeOn(s Subject, machine string) bool {
	n := w.view.Node(s.Node)
	return n != nil && bmc.UUIDsMatch(n.SystemUUID, machine)
}

// revoke stores that an enrolment has ended, and emits why. If another goroutine has just written the pin, the error is a conflict, and the next
// call works on what that has written.
func (w *pinWriter) revoke(ctx context.Context, p state.Pin, node, why string) error {
	p.EnrolledBy, p.Revoked, p.At = "", why, time.Now().UTC()
	if _, err := w.save(ctx, p, false); err != nil {
		return fmt.Errorf("end the enrolment: %w", err)
	}
	w.emit(event.Event{Type: event.Refused, Node: node, Reason: reason.NotEnrolled, Message: why})
	w.view.Wake()
	return nil
}

// revokeChecked is revoke because of a health check. After an error the next health check tries it again.
func (w *pinWriter) revokeChecked(ctx context.Context, p state.Pin, node, why string) {
	if err := w.revoke(ctx, p, node, why); err != nil && !isConflict(err) && ctx.Err() == nil {
		w.emit(event.Event{Type: event.Failed, Node: node, Message: err.Error()})
	}
}
