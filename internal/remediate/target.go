package remediate

import (
	"slices"
	"strings"
)

// MachineKey is the "namespace/name" of the Machine; "" if the target has none.
func (t Target) MachineKey() string {
	if t.Machine == "" {
		return ""
	}
	return t.Namespace + "/" + t.Machine
}

// Names are those under which people hold the target: of its Node, and of its Machine.
func (t Target) Names() (names []string) {
	for _, name := range []string{t.Node, t.MachineKey()} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// WithoutNode is the "namespace/name" of a Machine that has no Node; "" for every other
// target.
func (t Target) WithoutNode() string {
	if t.Node != "" {
		return ""
	}
	return t.MachineKey()
}

// Overlaps says whether two targets share a Machine, a Node or a host.
func (t Target) Overlaps(o Target) bool {
	return t.Node != "" && t.Node == o.Node ||
		t.Machine != "" && t.Namespace == o.Namespace && t.Machine == o.Machine ||
		t.Host != "" && t.Host == o.Host ||
		t.Address != "" && t.Address == o.Address || // one BMC under two names
		t.SharesDevice(o) ||
		t.BareMetalHost != "" && t.BareMetalHost == o.BareMetalHost
}

// SharesDevice says whether one device can switch the hosts of both targets.
func (t Target) SharesDevice(o Target) bool {
	theirs := strings.Split(o.Devices, "\n")
	return t.Devices != "" && slices.ContainsFunc(strings.Split(t.Devices, "\n"), func(key string) bool {
		return slices.Contains(theirs, key)
	})
}
