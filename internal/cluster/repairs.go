package cluster

import (
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// Repair is what another remediator was asked to do about one target. While it may be at work, nobody else acts
// there, and each try uses up the limits as a power cycle does. Package escalate makes them. // I11, I15, I22
type Repair struct {
	ID     string
	Target remediate.Target
	// By names what may be at work on the target; "" if nothing is.
	By string
	// Check is the mark of the check that asks; "" when nothing more is to be asked.
	Check string
	// InFlight: it has a place in the limits, and Stored: its slot over all clusters is to be there.
	InFlight, Stored          bool
	ControlPlane, TakesNoTurn bool // as of a run
	NodeLabels                map[string]string
	NodeNames                 remediate.NodeNames
	Tries                     []Try // the newest last
}

// Try is one request to another remediator.
type Try struct {
	policy.Attempt
	Ended time.Time
	// Open: it may be at work. Gone: the request is known not to exist. Done: the target has recovered by it.
	Open, Gone, Done bool
}

// openTarget is what the ledger knows about a repair that may be at work.
func (p *Repair) openTarget() policy.OpenRun {
	node := p.Target.Node
	if !p.ControlPlane {
		node = nodeThatWas(p.Target, p.NodeLabels)
	}
	return policy.OpenRun{ID: "of the remediator of " + p.By, Node: node, Machine: p.Target.MachineKey(), MachineAPI: p.Target.MachineAPI,
		ControlPlane: p.ControlPlane, TakesNoTurn: p.TakesNoTurn, SystemUUID: p.Target.SystemUUID, NodeLabels: p.NodeLabels, NodeNames: policy.NodeNames(p.NodeNames)}
}

// blocks returns the reason why nobody else may act on a target; "" if nobody was asked to repair it. // I22
func (rs runs) blocks(t remediate.Target) string {
	for _, p := range rs.repairs {
		if p.By != "" && sameHost(p.Target, t) {
			return p.By + " may be at work on it; to give that up: fencectl abort " + p.ID + " --as-is --reason WHY"
		}
	}
	return ""
}

// tried lists for the ledger what was tried on each target, by check and by Node and Machine.
func (rs runs) tried() map[string]map[string][]policy.Attempt {
	found := map[string]map[string][]policy.Attempt{}
	for _, p := range rs.repairs {
		var list []policy.Attempt
		for _, t := range p.Tries {
			if t.Gone {
				list = append(list, t.Attempt)
			}
		}
		if p.Check == "" || len(list) == 0 {
			continue
		}
		if found[p.Check] == nil {
			found[p.Check] = map[string][]policy.Attempt{}
		}
		for _, name := range p.Target.Names() {
			found[p.Check][name] = list
		}
	}
	return found
}

// isStep says whether a try is a step of the escalation of a candidate's check, from another of its templates.
func (p *Repair) isStep(t Try, a Candidate) bool {
	return a.Check != nil && a.Template != nil && len(a.Check.Escalation) > 0 && p.Check == a.Check.Mark() && p.Target.Overlaps(a.Draft.Target) && t.Gone &&
		!(&policy.Escalation{Template: *a.Template}).IsSourceOf(&policy.Request{APIVersion: t.APIVersion, Kind: t.Kind, TemplateName: t.TemplateName})
}

// SetRepairs replaces all repairs.
func (rs *Runs) SetRepairs(all []Repair) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.repairs, rs.changed = map[string]Repair{}, true
	for _, p := range all {
		rs.repairs[p.ID] = p
	}
}

// PutRepair adds or replaces a repair.
func (rs *Runs) PutRepair(p Repair) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.repairs[p.ID], rs.changed = p, true
}

// DropRepair removes a repair.
func (rs *Runs) DropRepair(id string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.repairs, id)
	rs.changed = true
}

// ReserveRepair lists a repair with a new try, if the try has a place under the limits. From then on nobody
// else acts on the target. An error is a *reason.Refusal. // I22
func (c *Model) ReserveRepair(a Candidate, p Repair, slots int, releasedAt, now time.Time) error {
	defer c.lock()()
	a.Draft.ID = p.ID
	if err := c.mayBegin(a, slots, releasedAt, now); err != nil {
		return err
	}
	c.Runs.repairs[p.ID], c.Runs.changed, c.Runs.reserved[p.ID] = p, true, true
	return nil
}

// EndReservation ends the time after ReserveRepair in which a repair takes its slot itself. // I11
func (rs *Runs) EndReservation(id string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.reserved, id)
}

// Leads says whether this instance leads, so that what it knows is newer than the store.
func (rs *Runs) Leads() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.leads
}

// RepairTarget returns what is known now about a target for which another remediator was asked. ok is false before the
// view is complete.
func (c *Model) RepairTarget(asked policy.Asked, now time.Time) (t policy.AskedTarget, ok bool) {
	defer c.lock()()
	if !c.Objects.complete {
		return t, false
	}
	c.applyOpenRuns(now)
	if t = c.Objects.ledger.AskedTarget(asked, now); t.Check == nil && c.Objects.filesRefused != "" { // it may be in a file that was not read
		t = policy.AskedTarget{Unknown: true}
	}
	return t, true
}

// Makers lists the checks by which fenced asks other remediators.
func (o *Objects) Makers() (list []policy.Check) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.ledger.Counters() {
		if check := o.ledger.Check(r.ID()); check != nil && check.AsksOthers() && r.State != policy.StatePaused && r.State != policy.StateInvalid {
			list = append(list, *check)
		}
	}
	return list
}

// SetDisabled sets for the ledger why nobody carries out the requests of checks.
func (o *Objects) SetDisabled(why map[string]string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ledger.SetDisabled(now, why)
}
