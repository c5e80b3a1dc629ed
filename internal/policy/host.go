package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// Formats in which a Machine names its BareMetalHost. OpenShift's provider writes
// baremetalhost:///NAMESPACE/NAME/UID. The Cluster API's writes
// metal3://NAMESPACE/NAME/MACHINE, and older versions metal3://UID.
const (
	openShiftScheme = "baremetalhost:///"
	metal3Scheme    = "metal3://"
)

// HostAnnotation of an OpenShift Machine names its BareMetalHost: namespace/name.
const HostAnnotation = "metal3.io/BareMetalHost"

// HostFor finds the BareMetalHost of a Machine: by providerID if there is one,
// because the controller that provisioned the host wrote it, else by annotation.
// The error names the host that was looked for.
func HostFor(m Machine, hosts []Host) (Host, error) {
	ref, err := hostRefOf(m)
	if err != nil {
		return Host{}, err
	}
	switch h := m.candidate(ref, hosts); {
	case h == nil:
		return Host{}, fmt.Errorf("BareMetalHost %s %w", ref, errNoSuchHost)
	case ref.name != "" && ref.uid != "" && h.UID != ref.uid:
		return Host{}, fmt.Errorf("BareMetalHost %s/%s has the uid %s, but the Machine's providerID names the uid %s", ref.namespace, ref.name, h.UID, ref.uid)
	case h.OnManagementAPI && m.Group() == group(OpenShiftMachineAPI):
		return Host{}, fmt.Errorf("BareMetalHost %s is on the management API, and the Machine is not", ref)
	default:
		return *h, nil
	}
}

var errNoSuchHost = errors.New("does not exist")

// candidate returns the host that a reference matches, or nil. A BareMetalHost that was moved to another
// cluster has another UID there, and the providerID keeps the old one. Then the host counts whose
// consumer is the infrastructure Machine, if there is one such host.
func (m *Machine) candidate(ref hostRef, hosts []Host) *Host {
	var consumed []*Host
	for i := range hosts {
		switch h := &hosts[i]; {
		case ref.matches(h):
			return h
		case ref.name == "" && m.isConsumerOf(h):
			consumed = append(consumed, h)
		}
	}
	if len(consumed) == 1 {
		return consumed[0]
	}
	return nil
}

// isConsumerOf reports whether a host in the namespace of a Machine of the Cluster API names its
// infrastructure Machine, of Metal3, as its consumer.
func (m *Machine) isConsumerOf(h *Host) bool {
	return m.Infrastructure.Kind == metal3Kind && h.ConsumerKind == metal3Kind && h.Namespace == m.Namespace && h.ConsumerRef == m.Consumer()
}

// Consumer is what the BareMetalHost of a Machine names as its consumer: for OpenShift the Machine,
// for the Cluster API its infrastructure Machine; "" if that is not known. It is always in the
// namespace of its Machine, whatever the reference of v1beta1 says: a tenant may write anything
// there. // I8
func (m *Machine) Consumer() string {
	switch {
	case m.Group() == group(OpenShiftMachineAPI):
		return m.Key()
	case m.Infrastructure.Name == "":
		return ""
	}
	return key(m.Namespace, m.Infrastructure.Name)
}

// HostOf finds the BareMetalHost of a Machine among those of the cluster.
func (o *owners) HostOf(m *Machine) (Host, error) {
	ref, err := hostRefOf(*m)
	if err != nil {
		return Host{}, err
	}
	var found []Host
	if h := o.hosts[key(ref.namespace, ref.name)]; h != nil {
		found = append(found, *h)
	}
	if ref.name == "" {
		for _, h := range o.hosts {
			if h.UID == ref.uid || m.isConsumerOf(h) {
				found = append(found, *h)
			}
		}
	}
	return HostFor(*m, found)
}

// groupOfProvider is the API group of the Machines that have such a providerID.
func groupOfProvider(providerID string) string {
	if strings.HasPrefix(providerID, openShiftScheme) {
		return group(OpenShiftMachineAPI)
	}
	return group(ClusterAPIV1Beta2)
}

// NamesHost reports whether a Machine names a BareMetalHost, in a readable form
// or not. If it does, the host has another owner of its power that must be asked,
// and a host that is not found is no permission. A providerID of another
// infrastructure names none.
func (m *Machine) NamesHost() bool {
	return strings.HasPrefix(m.ProviderID, "baremetalhost:") || strings.HasPrefix(m.ProviderID, "metal3:") ||
		m.Annotations[HostAnnotation] != ""
}

// refersTo reports whether a Machine names the host.
func (m *Machine) refersTo(h *Host) bool {
	ref, err := hostRefOf(*m)
	return err == nil && ref.matches(h)
}

// mayRunOn reports whether a Machine names the host, which may be nil, or the host names the Machine: HostOf may find the one by the other.
func (m *Machine) mayRunOn(h *Host) bool { return h != nil && (m.refersTo(h) || m.isConsumerOf(h)) }

// hostRef is the BareMetalHost that a Machine names: by name, by UID, or by both.
type hostRef struct{ namespace, name, uid string }

// matches reports whether a host has this name or, if the reference has no name,
// this UID.
func (r hostRef) matches(h *Host) bool {
	if r.name == "" {
		return h.UID == r.uid && (r.namespace == "" || h.Namespace == r.namespace)
	}
	return h.Namespace == r.namespace && h.Name == r.name
}

func (r hostRef) String() string {
	if r.name == "" {
		return "with uid " + r.uid
	}
	return r.namespace + "/" + r.name
}

// hostRefOf returns which BareMetalHost a Machine names.
func hostRefOf(m Machine) (ref hostRef, err error) {
	if m.ProviderID != "" {
		ref, err = parseProviderID(m.ProviderID)
	} else {
		text := m.Annotations[HostAnnotation]
		namespace, name, ok := strings.Cut(text, "/")
		switch ref = (hostRef{namespace: namespace, name: name}); {
		case text == "":
			err = fmt.Errorf("the Machine has neither a providerID nor the annotation %s", HostAnnotation)
		case !ok || namespace == "" || name == "" || strings.Contains(name, "/"):
			err = fmt.Errorf("the annotation %s: %q is not namespace/name", HostAnnotation, text)
		}
	}
	switch {
	case err != nil:
		return hostRef{}, err
	case m.Group() != group(ClusterAPIV1Beta2):
		return ref, nil
	}
	// Reject other namespaces: the Cluster API keeps Machine and host in one. The
	// author of such a Machine may not be trusted with the hosts of other
	// namespaces.
	if ref.namespace = cmp.Or(ref.namespace, m.Namespace); ref.namespace != m.Namespace {
		return hostRef{}, fmt.Errorf("BareMetalHost %s is in another namespace than its Machine", ref)
	}
	return ref, nil
}

func parseProviderID(id string) (hostRef, error) {
	if rest, ok := strings.CutPrefix(id, openShiftScheme); ok {
		parts := strings.Split(rest, "/")
		switch {
		case len(parts) == 2 && parts[0] != "" && parts[1] != "":
			return hostRef{namespace: parts[0], name: parts[1]}, nil
		case len(parts) == 3 && parts[0] != "" && parts[1] != "":
			return hostRef{namespace: parts[0], name: parts[1], uid: parts[2]}, nil
		}
	} else if rest, ok := strings.CutPrefix(id, metal3Scheme); ok {
		parts := strings.Split(rest, "/")
		switch {
		case len(parts) == 1 && parts[0] != "":
			return hostRef{uid: parts[0]}, nil
		case len(parts) == 3 && parts[0] != "" && parts[1] != "":
			return hostRef{namespace: parts[0], name: parts[1]}, nil
		}
	}
	return hostRef{}, fmt.Errorf("the Machine's providerID %q names no BareMetalHost", id)
}

// provisioned are the states in which a BareMetalHost runs the system of its Machine.
var provisioned = []string{"provisioned", "externally provisioned"}

// machineKind is what OpenShift's provider writes as the kind of a consumer, and
// metal3Kind what the Cluster API's writes.
const (
	machineKind = "Machine.machine.openshift.io"
	metal3Kind  = "Metal3Machine.infrastructure.cluster.x-k8s.io"
)

// NotLinked returns why a Machine and a BareMetalHost do not name each other, or why the
// host does not run the Machine now. It is "" if they do and it does. Without a Node,
// nothing else says that the two belong together. // I8
//
// A Machine of the Cluster API is named through its infrastructure Machine. Package
// k8swatch compares the two again with an uncached read.
func NotLinked(m *Machine, h *Host) string {
	if why := m.notNaming(h); why != "" {
		return why
	}
	want, kind := m.Consumer(), machineKind
	if m.Group() != group(OpenShiftMachineAPI) {
		kind = metal3Kind
	}
	switch {
	case h.ConsumerRef == "":
		return "BareMetalHost " + h.Key() + " has no consumerRef"
	case want != "" && h.ConsumerRef != want, h.ConsumerKind != kind:
		return fmt.Sprintf("the consumerRef of BareMetalHost %s names %s (%s), not %s", h.Key(), h.ConsumerRef,
			cmp.Or(h.ConsumerKind, "of no kind"), cmp.Or(want, "a "+kind))
	case !slices.Contains(provisioned, h.State):
		return fmt.Sprintf("BareMetalHost %s is not provisioned: its state is %q", h.Key(), h.State)
	}
	return ""
}

// notNaming returns why a Machine does not name a host. The providerID and the annotation
// must not disagree.
func (m *Machine) notNaming(h *Host) string {
	named := []Machine{*m}
	if m.ProviderID != "" && m.Annotations[HostAnnotation] != "" {
		byAnnotation := *m
		byAnnotation.ProviderID = ""
		named = append(named, byAnnotation)
	}
	for _, each := range named {
		ref, err := hostRefOf(each)
		switch {
		case err != nil:
			return "Machine " + m.Key() + ": " + err.Error()
		case ref.name == "" && m.isConsumerOf(h): // the UID may be that of before a move
		case !ref.matches(h), ref.uid != "" && ref.uid != h.UID:
			return "Machine " + m.Key() + " names BareMetalHost " + ref.String() + ", not " + h.Key()
		}
	}
	return ""
}

// The objects show before any fresh read that a host must be left alone: by its BareMetalHost, its owner
// forbids it, or somebody else wants it off; by the UUID of its Node, another Node is the same machine.

// pausedHost is the annotation that stops the bare-metal operator for one host.
const pausedHost = "baremetalhost.metal3.io/paused"

// operatorAtWork are the provisioning states in which the bare-metal operator
// switches the host itself. It keeps a host off for our power lock only in the
// states of a host that is in use.
var operatorAtWork = []string{"inspecting", "preparing", "provisioning", "deprovisioning", "powering off before delete", "deleting"}

// OffForbidden returns why the owner of the host's power does not let anybody else
// switch the host off, after "BareMetalHost NAME "; "" if it does. A detached host
// has no owner of its power that would interfere. hasNode: the target has a Node;
// without one, a host in such a state identifies nothing, which is refused before.
func (h *Host) OffForbidden(hasNode bool) string {
	_, paused := h.Annotations[pausedHost]
	switch {
	case h.DisablePowerOff:
		return "has disablePowerOff: true"
	case !h.Online:
		return "has online: false; its owner wants it off"
	case paused:
		return "is paused: its operator would not keep it off, and Ironic may switch it on; remove the annotation " + pausedHost
	case hasNode && slices.Contains(operatorAtWork, h.State):
		return "is " + strconv.Quote(h.State) + ": its operator switches it itself"
	}
	return ""
}

// PowerForbidden returns why the owner of the host's power does not let it be switched off for a
// target, or "". machine is the "namespace/name" of the target, "" if it has none, and consumer
// what the host of that names. byHardware: only its hardware says that it is the host.
func (h *Host) PowerForbidden(machine, consumer string, hasNode, byHardware bool) string {
	name := "BareMetalHost " + h.Key()
	switch why := h.OffForbidden(hasNode); {
	case why != "":
		return name + " " + why
	case h.ConsumerRef != "" && machine != "" && h.ConsumerRef != consumer: // I8
		return name + " belongs to " + h.ConsumerRef + ", not to " + cmp.Or(consumer, machine)
	case h.ConsumerRef == "" && (machine != "" && !hasNode || byHardware): // nothing else says that the host is the Machine's
		return name + " belongs to no Machine, and Machine " + machine + " has no Node"
	}
	return ""
}

// The annotations because of which the bare-metal operator keeps a host off, whatever their values:
// rebootAnnotation, and rebootAnnotation/KEY. PowerLockAnnotation is that of fenced.
const (
	rebootAnnotation    = "reboot.metal3.io"
	PowerLockAnnotation = rebootAnnotation + "/fenced"
)

// OtherPowerLock is an annotation of somebody else because of which the bare-metal operator keeps the
// host off; "" if there is none. Of several it is always the same one.
func (h *Host) OtherPowerLock() string {
	for _, k := range slices.Sorted(maps.Keys(h.Annotations)) {
		if k == rebootAnnotation || strings.HasPrefix(k, rebootAnnotation+"/") && k != PowerLockAnnotation {
			return k
		}
	}
	return ""
}

// Contender says that somebody else wants the host off; "" if nobody does. // I22
func (h *Host) Contender() string {
	if other := h.OtherPowerLock(); other != "" {
		return "BareMetalHost " + h.Key() + " carries the power request " + other
	}
	return ""
}

// hasHostsFor reports whether any BareMetalHost is known where a Machine names one. Saved objects may
// lack them all.
func (o *owners) hasHostsFor(m *Machine) bool {
	ref, err := hostRefOf(*m)
	for _, h := range o.hosts {
		if err == nil && (ref.namespace == "" || h.Namespace == ref.namespace) {
			return true
		}
	}
	return false
}

// refuseHosts refuses what fenced would do to a host that the objects show must be left alone. The daemon
// checks again with uncached reads.
func (w *tables) refuseHosts(r *Report) {
	runs := runsByUUID{}
	for _, run := range w.runs {
		if forms := bmc.UUIDForms(run.SystemUUID); len(forms) > 0 && (runs[forms[0]].ID == "" || run.ID < runs[forms[0]].ID) {
			runs[forms[0]] = run
		}
	}
	var services hostsByService
	if w.rules.HostsUnpinned {
		services = w.hostsByService()
	}
	for i := range r.Checks {
		c := &r.Checks[i]
		for j := range c.Targets {
			t := &c.Targets[j]
			powerCycles, delegated := c.executor(t)
			if t.Action == None || delegated {
				continue
			}
			n, m := w.nodes[t.Node], machineOfTarget(w, t)
			if n != nil {
				t.refuseBecause(reason.UnderRemediation, runs.onHostOf(n))                      // I6
				t.refuseBecause(reason.DuplicateUUID, w.NodeWithSameUUID(n.Name, n.SystemUUID)) // I9
			}
			if powerCycles || t.Action != CreateRequest { // a check that asks others knows its own requests
				t.refuseBecause(reason.Contested, w.requests.contender(t, m, n)) // I22
			}
			t.refuseBecause(reason.Contested, w.nodeLocks[t.Node].contender(t.Node, r.At)) // I22
			if powerCycles {
				t.refuseBecause(reason.LeaseTooLong, times.LeaseTooLong(w.leases[t.Node].Duration)) // I5
			}
			if m == nil {
				continue
			}
			h, err := w.HostOf(m)
			t.refuseBecause(reason.Contested, h.Contender()) // I22
			if powerCycles {
				w.refusePowerOwner(t, m, &h, err)
				if services != nil {
					services.refuse(t, &h)
				}
			}
		}
	}
}

// refusePowerOwner refuses to power-cycle a host whose owner forbids it, or that is not the Machine's. err is
// why h was not found.
func (o *owners) refusePowerOwner(t *TargetReport, m *Machine, h *Host, err error) {
	consumer := cmp.Or(m.Consumer(), h.ConsumerRef) // saved objects may lack the reference
	switch {
	case errors.Is(err, errNoSuchHost) && !o.hasHostsFor(m), err != nil && !m.NamesHost():
	case err != nil: // hosts.d may name a host, but not who else owns its power // I22
		t.refuseBecause(reason.InvalidHost, err.Error())
	case h.PowerForbidden(t.Machine, consumer, t.Node != "", false) != "":
		t.refuse(reason.PowerOwner)
	}
}

// refuseBecause refuses the action, and adds why to the message. It does nothing if there is no why.
func (t *TargetReport) refuseBecause(code reason.Code, why string) {
	if why != "" {
		t.refuse(code)
		t.Message += "; " + why
	}
}

// OtherNodesWithUUID returns the other Nodes with the same system UUID, in any order of its bytes, by name.
func (w *tables) OtherNodesWithUUID(node, systemUUID string) (twins []*Node) {
	uuid, ok := bmc.ParseUUID(systemUUID)
	if !ok {
		return nil
	}
	for _, form := range uuid.Forms() {
		for n := range w.nodesByUUID.of(form) {
			if n.Name != node {
				twins = append(twins, n)
			}
		}
	}
	slices.SortFunc(twins, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(twins)
}

// NodeWithSameUUID says which other Node has the system UUID: a host that has registered under a second name. It is
// "" if none has, and for a UUID that identifies no machine. // I9
func (w *tables) NodeWithSameUUID(node, systemUUID string) string {
	if twins := w.OtherNodesWithUUID(node, systemUUID); len(twins) > 0 {
		return "Node " + twins[0].Name + " has the same system UUID"
	}
	return ""
}

// runsByUUID are the open runs by the system UUID that their Node had. A run may have deleted that Node, and its host
// may have registered under another name: nobody else acts on it there. // I6, I9
type runsByUUID map[string]OpenRun

// onHostOf says which run on another Node, or on a Machine, is on the host of a Node; "" if none is.
func (x runsByUUID) onHostOf(n *Node) string {
	for _, form := range bmc.UUIDForms(n.SystemUUID) {
		if r := x[form]; r.ID != "" && r.Node != n.Name {
			return "run " + r.ID + " is open on " + cmp.Or(r.Node, r.Machine) + ", which has the same system UUID"
		}
	}
	return ""
}

// The Leases with which the controllers of medik8s keep each other from remediating or draining one Node at the
// same time: node-NODE in medik8s-leases. The name of a NodeHealthCheck follows NodeCheckHolder in the holder, and
// that of a store of fenced OwnLockHolder.
const (
	NodeLockNamespace = "medik8s-leases"
	NodeLockPrefix    = "node-"
	NodeCheckHolder   = "NodeHealthCheck-"
	OwnLockHolder     = "fenced-"
)

// LongestNodeLock is how long such a Lease counts at most once it stands still, whatever duration is written
// into it. The Node Maintenance Operator takes one for an hour.
const LongestNodeLock = time.Hour

// MaxHolder is how many bytes of the holder of a Lease are shown.
const MaxHolder = 300

// NodeLock is a Lease of medik8s on a Node.
type NodeLock struct {
	Holder    string
	RenewTime time.Time // zero: it does not say
	Duration  time.Duration
}

// contender says that somebody else holds the Lease on a Node; "" if nobody does. Saved objects do not tell which
// store is that of the daemon, so no fenced counts. // I22
func (l NodeLock) contender(node string, now time.Time) string {
	d := LongestNodeLock
	if l.Duration > 0 {
		d = min(d, l.Duration)
	}
	expired := !l.RenewTime.IsZero() && !now.Before(l.RenewTime.Add(d))
	if l.Holder == "" || expired || strings.HasPrefix(l.Holder, OwnLockHolder) {
		return ""
	}
	return bmc.Printable(l.Holder, MaxHolder) + " holds the Lease " + NodeLockNamespace + "/" + NodeLockPrefix + node
}
