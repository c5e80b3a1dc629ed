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
		ControlPlane: p.ControlPlane, TakesNoTurn: p.TakesNoTurn, NodeLabels: p.NodeLabels, NodeNames: policy.NodeNames(p.NodeNames)}
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

// Repairs is the part of a Model about what other remediators were asked.
type Repairs struct{ *Model }

// Set replaces all repairs. In a leadership the Model is newer than what another instance may have stored. // I19
func (c Repairs) Set(all []Repair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs.repairs, c.runsChanged = map[string]Repair{}, true
	for _, p := range all {
		c.runs.repairs[p.ID] = p
	}
}

// Put adds or replaces a repair.
func (c Repairs) Put(p Repair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs.repairs[p.ID], c.runsChanged = p, true
}

// Drop removes a repair.
func (c Repairs) Drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs.repairs, id)
	c.runsChanged = true
}

// Reserve puts a repair with a new try into the Model, if the try has a place under the limits. From then on nobody
// else acts on the target. An error is a *reason.Refusal. // I22
func (c Repairs) Reserve(a Candidate, p Repair, slots int, releasedAt, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.Draft.ID = p.ID
	if err := c.mayBegin(a, slots, releasedAt, now); err != nil {
		return err
	}
	c.runs.repairs[p.ID], c.runsChanged, c.runs.reserved[p.ID] = p, true, true
	return nil
}

// Reserved ends the time after Reserve in which a repair takes its slot itself. // I11
func (c Repairs) Reserved(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs.reserved, id)
}

// Leads says whether this instance leads, so that what it knows is newer than the store.
func (c Repairs) Leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leads
}

// Target returns what is known now about a target for which another remediator was asked. ok is false before the
// view is complete.
func (c Repairs) Target(asked policy.Asked, now time.Time) (t policy.AskedTarget, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		return t, false
	}
	c.applyOpenRuns(now)
	return c.ledger.AskedTarget(asked, now), true
}

// Makers lists the checks by which fenced asks other remediators.
func (c Repairs) Makers() (list []policy.Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.ledger.Counters() {
		if check := c.ledger.Check(r.ID()); check != nil && check.AsksOthers() && r.State != policy.StatePaused && r.State != policy.StateInvalid {
			list = append(list, *check)
		}
	}
	return list
}

// SetDisabled sets for the ledger why nobody carries out the requests of checks.
func (c Repairs) SetDisabled(why map[string]string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ledger.SetDisabled(now, why)
}
