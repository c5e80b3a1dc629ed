package report

import (
	"cmp"
	"strings"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
)

// object names an object of the cluster, of any kind.
type object = event.Check

// objects are those that an Event can be about.
type objects map[Subject]object

const machineKind = "Machine"

// openShiftMachines is the API of Machines in records that name none.
const openShiftMachines = "machine.openshift.io/v1beta1"

// objectsOf are the Node and the Machine of a target.
func objectsOf(t remediate.Target) objects {
	all := objects{}
	if t.Node != "" {
		all[Node] = nodeObject(t.Node)
	}
	if t.Machine != "" {
		all[Machine] = object{APIVersion: cmp.Or(t.MachineAPI, openShiftMachines), Kind: machineKind, Namespace: t.Namespace, Name: t.Machine, UID: t.MachineUID}
	}
	return all
}

// nodeObject is a Node in an Event. Its UID is its name, as in the Events of the kubelet:
// `kubectl describe node` looks for these, and they stay when the Node registers with
// another UID.
func nodeObject(name string) object {
	return object{APIVersion: "v1", Kind: "Node", Name: name, UID: name}
}

// checkOf finds the check that asked for a run, by the ID in the record: "Kind.group
// namespace/name", with the file if it is from one. A check from a file is no object.
func checkOf(id string, checks []event.Check) (object, bool) {
	for _, c := range checks {
		group, _, _ := strings.Cut(c.APIVersion, "/")
		if id == c.Kind+"."+group+" "+strings.TrimPrefix(c.Namespace+"/"+c.Name, "/") {
			return c, true
		}
	}
	return object{}, false
}

// requestVersions are the API versions of the requests that are objects of their own.
var requestVersions = map[string]string{
	"FencedRemediation": "fenced.io/v1alpha1",
	"Metal3Remediation": "infrastructure.cluster.x-k8s.io/v1beta1",
}

// requestOf is the object that asked for a run; not an annotation on the Machine.
func requestOf(run remediate.Run) (object, bool) {
	q := run.Request
	if q == nil || requestVersions[q.Kind] == "" {
		return object{}, false
	}
	return object{
		APIVersion: requestVersions[q.Kind], Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, UID: q.UID, OnManagementAPI: q.OnManagementAPI,
	}, true
}

// isOpenShift says whether an object is of OpenShift's Machine API.
func isOpenShift(o object) bool { return strings.HasPrefix(o.APIVersion, "machine.openshift.io/") }
