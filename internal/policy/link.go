package policy

import (
	"cmp"
	"fmt"
	"slices"
)

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
