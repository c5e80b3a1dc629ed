package report

import (
	"cmp"
	"maps"
	"strings"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// news is one thing to report: a reason of the Table, a sentence, and the objects that it
// is about. It is reported on those of them that the Table names.
type news struct {
	reason, message string
	about           objects
}

// object names an object of the cluster, of any kind.
type object = event.Check

// objects are those that an Event can be about.
type objects map[Subject]object

// ofRun returns what an event of a run reports. The record may be newer than the event.
func ofRun(e event.Event, run remediate.Run, checks []event.Check) (list []news) {
	about := objectsOf(run.Target)
	if check, there := checkOf(run.CheckID, checks); there {
		about[Check] = check
	}
	if request, is := requestOf(run); is {
		about[Check] = request
	}
	prefix := "run " + run.ID + " of " + nameOf(run.Target) + ": "
	add := func(reason, message string, on objects) {
		list = append(list, news{reason: reason, message: prefix + message, about: on})
	}
	switch e.Type {
	case event.Started:
		why := "began: " + e.Message
		if machine := about[Machine]; asksForPower(run, machine, about[Check]) {
			add(externalAnnotationAdded, why, objects{Machine: machine})
			about = maps.Clone(about)
			delete(about, Machine)
		}
		add(remediationStarted, why, about)
	case event.Stepped:
		before := visitBefore(run, e)
		if isolatedIn(run, before) {
			reason, message := isolation(run)
			add(reason, message, about)
			if e.Step == remediate.PowerOn {
				return list
			}
		}
		if reason, message := step(e, run, before.Step); reason != "" {
			add(reason, message, about)
		}
	case event.Failed:
		switch {
		case e.Action == remediate.DeleteTargetMachine:
			add(machineDeletionFailed, e.Message, about)
		case e.Action != "":
			add(actionFailed, string(e.Action)+": "+e.Message, about)
		}
	}
	return list
}

// nameOf names a target to people.
func nameOf(t remediate.Target) string {
	if t.Node == "" {
		return "Machine " + t.MachineKey()
	}
	return "Node " + t.Node
}

// asksForPower reports whether a run is what OpenShift's check asks the owner of a host for with
// an annotation on the Machine: a power cycle.
func asksForPower(run remediate.Run, machine, check object) bool {
	return run.Strategy == remediate.PowerCycle && isOpenShift(machine) && isOpenShift(check)
}

// visitBefore is the stay in a step that ended with an event. The journal of the run, which
// may go on after that, has no entry of an end.
func visitBefore(run remediate.Run, e event.Event) remediate.Visit {
	if n := len(run.Steps); e.Step.Ended() && n > 0 {
		return run.Steps[n-1]
	}
	for i := len(run.Steps) - 1; i > 0; i-- {
		if v := run.Steps[i]; v.Step == e.Step && !v.Started.After(e.At) {
			return run.Steps[i-1]
		}
	}
	return remediate.Visit{}
}

// isolatedIn reports whether the Node was isolated in a stay in step 2.
func isolatedIn(run remediate.Run, v remediate.Visit) bool {
	return v.Step == remediate.DeleteNode && !run.Isolated.Before(v.Started) && !run.Isolated.After(v.Ended)
}

func isolation(run remediate.Run) (reason, message string) {
	if run.Isolation == remediate.IsolateTaint {
		return addOutOfServiceTaint, "the Node has the out-of-service taint; its pods and volumes may move"
	}
	return nodeDeleted, "the Node is deleted; its pods and volumes may move"
}

// step returns what the beginning of a step, a wait or an end reports; "" for nothing.
func step(e event.Event, run remediate.Run, before remediate.Step) (reason, message string) {
	switch e.Step {
	case remediate.PowerOff:
		return poweringOff, "powers the host off again" + because(e.Message)
	case remediate.DeleteNode:
		return hostPoweredOff, "the host is off" + proofOf(run)
	case remediate.PowerOn:
		return poweringOn, "powers the host on" + because(e.Message)
	case remediate.AwaitNode:
		if before == remediate.PowerOn {
			return hostPoweredOn, "the host is on; its Node must register"
		}
	case remediate.RestoreNode:
		return nodeRegistered, "the Node has registered after a boot; its labels, annotations and taints are restored"
	case remediate.Reprovision:
		return replacingMachine, "the Machine is to be replaced" + because(e.Message)
	case remediate.Waiting:
		return remediationWaiting, coded(e) + "; it goes on by itself"
	case remediate.Held:
		return remediationHeld, coded(e) + "; a person must act: fencectl timeline " + run.ID
	case remediate.Aborted:
		return remediationAborted, coded(e)
	case remediate.Done:
		return remediationFinished, "done" + because(coded(e))
	case remediate.Reprovisioned:
		if machine := objectsOf(run.Target)[Machine]; !isOpenShift(machine) {
			return machineMarkedUnhealthy, "the Machine is marked unhealthy for its owner to replace it, or is being deleted"
		}
		return machineDeleted, "the Machine is deleted, or is being deleted; its owner makes a new one"
	}
	return "", ""
}

// because adds why a step was entered, if something is known.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// coded is the reason code of an event with its sentence.
func coded(e event.Event) string {
	if e.Reason == "" {
		return e.Message
	}
	return string(e.Reason) + because(e.Message)
}

func proofOf(run remediate.Run) string {
	switch run.Proof {
	case remediate.ProofBMC:
		return ": its BMC has read Off twice"
	case remediate.ProofDevice:
		return ": the devices that feed it have read Off twice"
	case remediate.ProofHuman:
		if run.Confirmed != nil {
			return ": confirmed by " + run.Confirmed.Actor
		}
	}
	return ""
}

// ofPolicy returns what an event about a check or a refused target reports.
func ofPolicy(e event.Event, target remediate.Target) []news {
	about := objects{}
	if e.About.UID != "" { // a check from a file is no object
		about[Check] = e.About
	}
	switch e.Type {
	case event.Refused:
		if e.Reason == reason.NotUnhealthy { // nobody asks for it any more, so nothing was skipped
			return nil
		}
		about = objectsOf(target)
		if e.Node != "" {
			about[Node] = nodeObject(e.Node)
		}
		message := coded(e)
		if e.Check != "" {
			message += "; asked for by " + e.Check
		}
		if e.Reason == reason.NoController {
			return []news{{skippedNoController, message, about}}
		}
		return []news{{remediationSkipped, message, about}}
	case event.LimitClosed:
		return []news{{remediationRestricted, e.Message, about}}
	case event.LimitOpened:
		return []news{{remediationAllowed, e.Message, about}}
	case event.CheckChanged:
		switch e.Reason {
		case "":
			return []news{{checkEnabled, e.Message, about}}
		case reason.NotCovered: // it is gone
		default:
			return []news{{checkDisabled, coded(e), about}}
		}
	}
	return nil
}

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

// isOpenShift reports whether an object is of OpenShift's Machine API.
func isOpenShift(o object) bool { return strings.HasPrefix(o.APIVersion, "machine.openshift.io/") }
