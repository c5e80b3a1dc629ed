package manifest

import "github.com/fenced/fenced/internal/policy"

// Node decodes a core/v1 Node.
func Node(fields map[string]any) (policy.Node, error) {
	o := read(fields)
	meta, spec, status := o.child("metadata"), o.child("spec"), o.child("status")
	info := status.child("nodeInfo")
	n := policy.Node{
		Labels: meta.labels("labels"), Annotations: meta.textMap("annotations"),
		Deleting:   !meta.time("deletionTimestamp").IsZero(),
		ProviderID: spec.text("providerID"),
		SystemUUID: info.text("systemUUID"), BootID: info.text("bootID"), MachineID: info.text("machineID"),
	}
	n.OpenShiftMachine, n.ClusterMachine = policy.NamedMachines(n.Annotations)
	_, n.Name, n.UID, n.ResourceVersion = identify(meta, false)
	n.Conditions = conditions(status)
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
	p.Namespace, p.Name, _, _ = identify(meta, true)
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
	_, node, _, _ = identify(o.child("metadata"), true)
	l.RenewTime = o.child("spec").time("renewTime")
	return node, l, o.err()
}
