package cluster

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// Candidate is a target that a check or a person wants remediated, and the run that it
// would become.
type Candidate struct {
	Key   string
	Draft remediate.Run
	Node  *policy.Node
	Since time.Time // since when the target is not healthy; zero if a person or a request wants the run, or if it is not known
	// zoneKey is the zone label of the check; empty: that of the cluster.
	zoneKey string
	// ownRetry: the candidate is a Waiting run that fenced itself begins again.
	ownRetry bool
	// protected: the entry in hosts.d forbids automatic runs.
	Protected bool
	// asksOther: another remediator is asked.
	AsksOther bool
	// missingHost says why the BareMetalHost that the Machine names is not found.
	MissingHost string
	// doubt is why the Node may belong to another Machine, or to none. It is set for orders only: the
	// evaluation of a check includes it.
	Doubt policy.Doubt
	// gates are those that were evaluated before the run starts, for the audit log.
	Gates []reason.Gate
	// check is the check, or the request, that wants the run; nil: a person does.
	Check *policy.Check
	// template is the next one of a check that asks for requests; nil: the check has none.
	Template *policy.Template
	// startingUntil is when the start-up timeout of the Machine ends, if the Machine has not
	// failed itself; zero: it has, or there is no timeout.
	startingUntil time.Time
}

// TargetKey tells targets apart: both API families may have a Machine of one name, on two API servers.
func TargetKey(t *policy.TargetReport) string {
	group, _, _ := strings.Cut(t.MachineAPIVersion, "/")
	return group + " " + t.Machine + "|" + t.Node
}

// Drafter holds the settings with which every run of a cluster is drafted.
type Drafter struct {
	Isolation remediate.Isolation
	// ControlPlaneIsolation is that of control-plane hosts; empty: the default for the kind of
	// cluster.
	ControlPlaneIsolation remediate.Isolation
	Reprovision           bool
	Limits                *Limits

	deleteControlPlane bool // control-plane Machines may be deleted
}

// override applies the limits and the isolation that a check sets for its own runs.
func (d Drafter) override(r *remediate.Run, check *policy.Check) {
	of, l := check.Deadlines, &r.Limits
	l.OffDeadline, l.OnDeadline = cmp.Or(of.PowerOff, l.OffDeadline), cmp.Or(of.PowerOn, l.OnDeadline)
	l.ReadyTimeout, l.RunTimeout = cmp.Or(of.NodeReady, l.ReadyTimeout), cmp.Or(of.Run, l.RunTimeout)
	l.MaxAttempts = cmp.Or(check.MaxAttempts, l.MaxAttempts)
	l.Reprovision = l.Reprovision && !policy.GoesOnAfterFenced(check) // what follows decides about the Machine // I14
	r.Isolation = cmp.Or(remediate.Isolation(check.Isolation), r.Isolation)
	if r.ControlPlane {
		r.Isolation = d.IsolationOf(r.Target, check)
	}
}

// IsolationOf returns how a control-plane Node is isolated. Deleting the Node of a
// k3s or RKE2 server removes its etcd member, so fenced deletes only if the configuration or
// the kind of cluster says so. A check may ask for the taint, but not for the deletion.
func (d Drafter) IsolationOf(t remediate.Target, check *policy.Check) remediate.Isolation {
	openShift := t.MachineAPI == policy.OpenShiftMachineAPI
	if check != nil {
		openShift = openShift || check.APIVersion == policy.OpenShiftMachineAPI
		if check.Isolation == string(remediate.IsolateTaint) {
			return remediate.IsolateTaint
		}
	}
	switch {
	case d.ControlPlaneIsolation != "":
		return d.ControlPlaneIsolation
	case openShift:
		return remediate.IsolateDelete
	}
	return remediate.IsolateTaint
}

// strategyOf is how fenced carries out the action of a check; "" when another controller
// does. A request from fenced's own template needs no object: it is a power cycle.
func strategyOf(check *policy.Check, t *policy.TargetReport) remediate.Strategy {
	switch t.Action {
	case policy.PowerCycle:
		return remediate.PowerCycle
	case policy.DeleteMachine, policy.MarkOwner:
		return remediate.DeleteMachine
	case policy.CreateRequest:
		if usesOwnTemplate(check, t) {
			return remediate.PowerCycle
		}
	}
	return ""
}

// usesOwnTemplate says whether the request would be made from fenced's own template.
func usesOwnTemplate(check *policy.Check, t *policy.TargetReport) bool {
	template := cmp.Or(t.Template, check.Template)
	return template != nil && template.IsOwn()
}

// CheckID identifies a check among checks of all kinds. It does not depend on the API version
// in which the check is read, nor on its position in a file.
func CheckID(id policy.CheckID) string {
	group, _, _ := strings.Cut(id.APIVersion, "/")
	text := id.Kind + "." + group + " " + strings.TrimPrefix(id.Namespace+"/"+id.Name, "/")
	if at := strings.LastIndex(id.Source, ":"); at > 0 {
		text += " in " + id.Source[:at]
	}
	return text
}

// withoutFile is the ID of a check without the name of its file, which people may change. No two files have a check of one name, but the
// cluster may have one of that name, too.
func withoutFile(checkID string) string {
	id, _, fromFile := strings.Cut(checkID, " in ")
	if fromFile {
		id += " in a file"
	}
	return id
}

// CandidateForCheck drafts the run of one target of a check; false when the target has
// changed since it was evaluated.
func (c *Model) CandidateForCheck(check *policy.Check, t *policy.TargetReport) (Candidate, bool) {
	defer c.lock()()
	n, m := c.Objects.ledger.Node(t.Node), evaluatedMachine(c.Objects.ledger, t)
	if (t.Machine != "") != (m != nil) {
		return Candidate{}, false
	}
	d := c.Options.Draft
	r := remediate.Run{Isolation: d.Isolation, Limits: d.Limits.Now().Run}
	r.Limits.Reprovision = d.Reprovision
	r.Target = targetOf(c.Objects.ledger, c.Options.Name, m, n, t.Node)
	r.Strategy, r.ControlPlane = strategyOf(check, t), t.ControlPlane
	r.Trigger, r.Check, r.CheckID = t.Trigger, check.Key(), CheckID(check.ID())
	r.Limits.ReplaceControlPlane = t.Action == policy.MarkOwner || d.deleteControlPlane
	r.Limits.ReadyTimeout = max(r.Limits.ReadyTimeout, t.StartupTimeout)
	d.override(&r, check)
	r.TakesNoTurn = r.ControlPlane && !c.Objects.ledger.TakesTurn(n, m)
	r.Origin = c.Objects.replacements.originOf(m)
	r.NodeLabels, r.NodeNames = c.Runs.knownNode(r.Target, n)
	return Candidate{
		Key: TargetKey(t), Draft: r, Node: n, Since: t.Since, zoneKey: check.ZoneKey, Check: check, MissingHost: missingHost(c.Objects.ledger, m),
		startingUntil: startingUntil(t, m), AsksOther: check.HandsOver(t), Template: cmp.Or(t.Template, check.Template),
	}, true
}

// CandidateForOrder drafts the run that a person ordered. An error is a *reason.Refusal.
func (c *Model) CandidateForOrder(o wire.Order) (Candidate, error) {
	defer c.lock()()
	if !c.Objects.complete {
		return Candidate{}, ErrNotSeen()
	}
	n, m, node, err := objectsOf(c.Objects.ledger, o)
	if err != nil {
		return Candidate{}, err
	}
	d := c.Options.Draft
	r := remediate.Run{Isolation: d.Isolation, Limits: d.Limits.Now().Run}
	r.Limits.Reprovision = d.Reprovision
	r.Strategy, r.OffOnly = remediate.PowerCycle, o.OffOnly
	r.Target = targetOf(c.Objects.ledger, c.Options.Name, m, n, node)
	r.NodeLabels, r.NodeNames = c.Runs.knownNode(r.Target, n)
	r.ControlPlane = n != nil && n.ControlPlane || m != nil && m.ControlPlane
	if r.ControlPlane {
		r.Isolation, r.TakesNoTurn = d.IsolationOf(r.Target, nil), !c.Objects.ledger.TakesTurn(n, m)
	}
	r.Manual = &remediate.Order{Actor: o.Actor, Reason: o.Reason, At: time.Now().UTC(), Admin: o.ByAdmin()}
	r.Trigger = "manual fence by " + o.Actor + ": " + o.Reason
	return Candidate{Key: "manual|" + o.Of(), Draft: r, Node: n, MissingHost: missingHost(c.Objects.ledger, m), Doubt: doubtOf(c.Objects.ledger, m, n)}, nil
}

// doubtOf returns why a person cannot know which host an order is for: the Machine may not be that of
// the Node. hosts.d may name the host by a Node that is gone, so that one must have been the Machine's, too. // I8
func doubtOf(l *policy.Ledger, m *policy.Machine, n *policy.Node) policy.Doubt {
	if d := l.Doubt(m, n); d != (policy.Doubt{}) {
		return d
	}
	if m != nil && !l.Owns(m, n) {
		return policy.Doubt{Reason: reason.NodeNotOwned, Message: l.NotOwned(m, n).Why}
	}
	return policy.Doubt{}
}

// objectsOf returns the Node and the Machine that an order names, each nil if there is none, and
// the name of the Node, which is "" for a Machine that has none. An error is a *reason.Refusal.
func objectsOf(l *policy.Ledger, o wire.Order) (n *policy.Node, m *policy.Machine, node string, err error) {
	if o.Machine != "" {
		if m = machineNamed(l, o.Machine); m == nil {
			return nil, nil, "", noSuchMachine(o.Machine)
		}
		return l.Node(m.NodeName), m, m.NodeName, nil
	}
	n, m = l.Node(o.Node), l.MachineOf(o.Node)
	if n == nil && m == nil {
		return nil, nil, "", &reason.Refusal{Reason: reason.NoSuchNode, Message: "no Node is named " + o.Node + ", and no Machine shows that a Node of that name was its; list the names with kubectl get nodes, or name the Machine"}
	}
	return n, m, o.Node, nil
}

func noSuchMachine(machine string) error {
	return &reason.Refusal{Reason: reason.NoSuchMachine,
		Message: "no Machine is named " + machine + ", or one of OpenShift and one of the Cluster API are; list the names with kubectl get machines -A"}
}

// NewRunID returns an ID that sorts by time and is unique without coordination.
func NewRunID(now time.Time) string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	return strconv.FormatInt(now.UnixMilli(), 36) + "-" + hex.EncodeToString(b[:])
}
