package manifest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
)

// Node decodes a core/v1 Node.
func Node(fields map[string]any) (policy.Node, error) {
	o := read(fields)
	meta, spec, status := o.child("metadata"), o.child("spec"), o.child("status")
	info := status.child("nodeInfo")
	n := policy.Node{
		Labels: policy.LabelsOf(meta.labels("labels")), Annotations: meta.textMap("annotations"),
		Created: meta.time("creationTimestamp"), Deleting: !meta.time("deletionTimestamp").IsZero(),
		ProviderID: spec.text("providerID"),
		SystemUUID: info.text("systemUUID"), BootID: info.text("bootID"), MachineID: info.text("machineID"),
	}
	n.OpenShiftMachine, n.ClusterMachine = policy.NamedMachines(n.Annotations)
	_, n.Name, n.UID = identify(meta, false)
	n.Conditions = policy.ConditionsOf(conditions(status))
	for _, a := range status.shortList("addresses") {
		n.Addresses = append(n.Addresses, a.text("address"))
	}
	n.ControlPlane = policy.ControlPlaneNode(n.Labels)
	return n, o.err()
}

// Pod decodes a Pod of the control plane; part is false for other Pods. OpenShift sets three labels on the Pods
// of members of etcd; in saved objects any of them is enough. The daemon lists by one.
func Pod(fields map[string]any) (p policy.Pod, part bool, err error) {
	o := read(fields)
	meta := o.child("metadata")
	p.Namespace, p.Name, _ = identify(meta, true)
	labels := meta.labels("labels")
	part, p.Member = policy.ControlPlanePod(p.Namespace, labels)
	if p.Namespace == etcdSpace && (labels["k8s-app"] == "etcd" || labels["etcd"] == "true") {
		part, p.Member = true, true
	}
	p.Node = o.child("spec").text("nodeName")
	for _, c := range o.child("status").shortList("conditions") {
		if c.text("type") == "Ready" {
			p.Ready = c.text("status") == "True"
		}
	}
	return p, part, o.err()
}

// Lease decodes a kubelet's heartbeat: a coordination.k8s.io/v1 Lease named after
// its Node.
func Lease(fields map[string]any) (node string, l policy.Lease, err error) {
	o := read(fields)
	_, node, _ = identify(o.child("metadata"), true)
	spec := o.child("spec")
	l.RenewTime, l.Duration = spec.time("renewTime"), leaseDuration(spec)
	return node, l, o.err()
}

func leaseDuration(spec object) time.Duration {
	return time.Duration(max(0, spec.whole("leaseDurationSeconds", 0))) * time.Second
}

// NodeLock decodes a Lease of medik8s on a Node.
func NodeLock(fields map[string]any) (node string, l policy.NodeLock, err error) {
	o := read(fields)
	_, name, _ := identify(o.child("metadata"), true)
	spec := o.child("spec")
	l = policy.NodeLock{Holder: spec.text("holderIdentity"), RenewTime: spec.time("renewTime"), Duration: leaseDuration(spec)}
	return strings.TrimPrefix(name, policy.NodeLockPrefix), l, o.err()
}

// BareMetalHost decodes a metal3.io/v1alpha1 BareMetalHost.
func BareMetalHost(fields map[string]any) (policy.Host, error) {
	o := read(fields)
	meta, spec := o.child("metadata"), o.child("spec")
	bmc := spec.child("bmc")
	h := policy.Host{
		Address: bmc.text("address"), CredentialsName: bmc.text("credentialsName"),
		DisableCertificateVerification: bmc.flag("disableCertificateVerification"),
		DisablePowerOff:                spec.flag("disablePowerOff"),
		Online:                         !spec.has("online") || spec.flag("online"), // the API always has it
		ExternallyProvisioned:          spec.flag("externallyProvisioned"),
		Annotations:                    powerAnnotations(meta.textMap("annotations")),
	}
	h.Namespace, h.Name, h.UID = identify(meta, true)
	status := read(o.child("status").fields) // it belongs to a controller: what cannot be read is unknown
	h.State = status.child("provisioning").text("state")
	h.Serial, h.NICs = hardware(status)
	h.MACs = allMACs(spec.text("bootMACAddress"), h.NICs)
	if spec.has("consumerRef") {
		ref := spec.child("consumerRef")
		h.ConsumerRef = ref.text("namespace") + "/" + ref.text("name")
		h.ConsumerKind = kindAndGroup(ref.text("kind"), ref.text("apiVersion"))
	}
	return h, o.err()
}

// kindAndGroup is "Kind.group"; "" if either is missing.
func kindAndGroup(kind, apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if kind == "" || !ok {
		return ""
	}
	return kind + "." + group
}

// hardware reads the identity of the machine from the status, as the inspection found
// it.
func hardware(status object) (serial string, nics []string) {
	found := status.child("hardware")
	for _, nic := range found.first("nics") {
		if mac := nic.text("mac"); mac != "" && !slices.Contains(nics, mac) {
			nics = append(nics, mac)
		}
	}
	return found.child("systemVendor").text("serialNumber"), nics
}

// allMACs returns the MAC address of spec, if there is one, and those of the
// inspection, each once.
func allMACs(boot string, nics []string) (macs []string) {
	if boot != "" {
		macs = append(macs, boot)
	}
	for _, mac := range nics {
		if mac != boot {
			macs = append(macs, mac)
		}
	}
	return macs
}

// powerAnnotations returns the annotations of others that concern the host's
// power.
func powerAnnotations(all map[string]string) map[string]string {
	var kept map[string]string
	for key, value := range all {
		switch {
		case strings.HasPrefix(key, "reboot.metal3.io"),
			key == "baremetalhost.metal3.io/detached", key == "baremetalhost.metal3.io/paused":
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value[:min(len(value), maxValue)]
		}
	}
	return kept
}

// ClusterVersion decodes a config.openshift.io/v1 ClusterVersion: whether the
// cluster is being upgraded. One that cannot be read counts as an upgrade.
func ClusterVersion(fields map[string]any) (policy.Upgrade, error) {
	o := read(fields)
	var u policy.Upgrade
	_, name, _ := identify(o.child("metadata"), false)
	for _, c := range conditions(o.child("status")) {
		if c.Type == progressing && c.Status == "True" {
			u.Why = fmt.Sprintf("%s %s is %s", clusterVersionKind, name, progressing)
		}
	}
	err := o.err()
	if err != nil {
		u.Why = fmt.Sprintf("%s %s cannot be read", clusterVersionKind, name)
	}
	return u, err
}

// identify reads the identity of an object; namespaced kinds need a namespace.
func identify(meta object, namespaced bool) (namespace, name, uid string) {
	namespace, name = meta.text("namespace"), meta.text("name")
	if name == "" {
		meta.fail(meta.at("name"), "is missing")
	}
	if namespaced && namespace == "" {
		meta.fail(meta.at("namespace"), "is missing")
	}
	return namespace, name, meta.text("uid")
}

// controllerOwner is the owner, of any kind, that recreates the object.
func controllerOwner(meta object) policy.Owner {
	for _, ref := range meta.shortList("ownerReferences") {
		if ref.flag("controller") {
			return policy.Owner{Kind: ref.text("kind"), Name: ref.text("name"), UID: ref.text("uid")}
		}
	}
	return policy.Owner{}
}

// conditions reads the list of that name.
func conditions(o object) []policy.Condition {
	var list []policy.Condition
	for _, c := range o.shortList("conditions") {
		list = append(list, policy.Condition{
			Type: c.text("type"), Status: c.text("status"), LastTransition: c.time("lastTransitionTime"),
		})
	}
	return list
}
