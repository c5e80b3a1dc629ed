package policy

import (
	"errors"
	"fmt"
	"strings"
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

// HostOf finds the BareMetalHost of a Machine among those of the ledger.
func (l *Ledger) HostOf(m *Machine) (Host, error) { return l.w.hosts.of(m) }

// hostsByName are BareMetalHosts by "namespace/name".
type hostsByName map[string]*Host

// of finds the BareMetalHost of a Machine.
func (hosts hostsByName) of(m *Machine) (Host, error) {
	ref, err := hostRefOf(*m)
	if err != nil {
		return Host{}, err
	}
	var found []Host
	if h := hosts[key(ref.namespace, ref.name)]; h != nil {
		found = append(found, *h)
	}
	if ref.name == "" {
		for _, h := range hosts {
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

// refersTo reports whether a Machine names the host, which may be nil.
func (m *Machine) refersTo(h *Host) bool {
	if h == nil {
		return false
	}
	ref, err := hostRefOf(*m)
	return err == nil && ref.matches(h)
}

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

func hostRefOf(m Machine) (hostRef, error) {
	ref, err := namedHost(m)
	if err == nil && m.Group() == group(ClusterAPIV1Beta2) {
		// Reject other namespaces: the Cluster API keeps Machine and host in one. The
		// author of such a Machine may not be trusted with the hosts of other
		// namespaces.
		if ref.namespace == "" {
			ref.namespace = m.Namespace
		}
		if ref.namespace != m.Namespace {
			return hostRef{}, fmt.Errorf("BareMetalHost %s is in another namespace than its Machine", ref)
		}
	}
	return ref, err
}

func namedHost(m Machine) (hostRef, error) {
	if m.ProviderID != "" {
		return parseProviderID(m.ProviderID)
	}
	ref := m.Annotations[HostAnnotation]
	if ref == "" {
		return hostRef{}, fmt.Errorf("the Machine has neither a providerID nor the annotation %s", HostAnnotation)
	}
	namespace, name, ok := strings.Cut(ref, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return hostRef{}, fmt.Errorf("the annotation %s: %q is not namespace/name", HostAnnotation, ref)
	}
	return hostRef{namespace: namespace, name: name}, nil
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
