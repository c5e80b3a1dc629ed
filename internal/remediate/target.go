package remediate

import (
	"slices"
	"strings"
)

// Target is the Machine, Node and host of one run. UIDs and the boot ID are
// those the decision was made on; names alone never authorise a write. // I2
type Target struct {
	Cluster string `json:"cluster"`
	// ClusterUID is the UID of the cluster's Namespace kube-system: a kubeconfig may lead to another
	// cluster later, with equal names. Empty in older records.
	ClusterUID string `json:"clusterUID,omitempty"`
	// ManagementUID is the same of a separate management cluster, which has the Machines; empty without one, and in
	// older records.
	ManagementUID string `json:"managementUID,omitempty"`
	Node          string `json:"node"`
	NodeUID       string `json:"nodeUID,omitempty"`
	BootID        string `json:"bootID,omitempty"`
	SystemUUID    string `json:"systemUUID,omitempty"`
	Namespace     string `json:"machineNamespace,omitempty"`
	Machine       string `json:"machine,omitempty"`
	MachineUID    string `json:"machineUID,omitempty"`
	// MachineAPI is the apiVersion of the Machine; "" in older records, which only
	// knew one. It decides how step 6 has the owner replace the Machine.
	MachineAPI string `json:"machineAPI,omitempty"`
	Host       string `json:"host,omitempty"` // bmc.Host.Name, "" for DeleteMachine
	// Address is the BMC's address at the start. A run never follows a host whose
	// address is changed later. // I10
	Address string `json:"address,omitempty"`
	// Devices names every device that can switch the host, one to a line
	// (bmc.Host.Keys); empty in older records, which have Address alone.
	Devices string `json:"devices,omitempty"`
	// Choice is what selects the machine behind each device at the start
	// (bmc.Device.Fingerprint); empty in older records. // I10
	Choice string `json:"choice,omitempty"`
	// ReportedUUID is the system UUID that the BMC reported when the run began without a
	// Node, or with one that told none. Only a Node with this UUID is one of the same machine. // I6
	ReportedUUID string `json:"reportedUUID,omitempty"`
	// ByHardware: without a Node, the BMC was identified by the serial number or the MAC
	// addresses of the BareMetalHost, and by nothing else. // I8
	ByHardware bool `json:"byHardware,omitempty"`
	// Secret names the Secrets of the devices at the start, one to a line; empty in older
	// records, and where none comes from a Secret.
	Secret string `json:"secret,omitempty"`
	// BareMetalHost is namespace/name when Metal3 also owns this host's power. Our
	// power lock must then be on it before the host is switched off.
	BareMetalHost    string `json:"bareMetalHost,omitempty"`
	BareMetalHostUID string `json:"bareMetalHostUID,omitempty"` // of that object; empty in older records
}

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
		t.Machine != "" && t.MachineKey() == o.MachineKey() && t.mayShareAPI(o) ||
		t.Host != "" && t.Host == o.Host ||
		t.Address != "" && t.Address == o.Address || // one BMC under two names
		t.SharesDevice(o) ||
		t.BareMetalHost != "" && t.BareMetalHost == o.BareMetalHost
}

// mayShareAPI says whether the Machines of two targets may be of one API. Those of two may be on two API servers,
// where a namespace of one name belongs to two people.
func (t Target) mayShareAPI(o Target) bool {
	group, _, _ := strings.Cut(t.MachineAPI, "/")
	other, _, _ := strings.Cut(o.MachineAPI, "/")
	return group == "" || other == "" || group == other
}

// SharesDevice says whether one device can switch the hosts of both targets.
func (t Target) SharesDevice(o Target) bool {
	theirs := strings.Split(o.Devices, "\n")
	return t.Devices != "" && slices.ContainsFunc(strings.Split(t.Devices, "\n"), func(key string) bool {
		return slices.Contains(theirs, key)
	})
}
