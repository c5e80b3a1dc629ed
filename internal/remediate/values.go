package remediate

// Step is the present step of a run. The six steps come in order. A Waiting run goes
// on by itself, a Held run needs a person. Done, Aborted and Reprovisioned are the ends.
type Step string

// The steps and ends of a run.
const (
	PowerOff    Step = "PowerOff"
	DeleteNode  Step = "DeleteNode"
	PowerOn     Step = "PowerOn"
	AwaitNode   Step = "AwaitNode"
	RestoreNode Step = "RestoreNode"
	Reprovision Step = "Reprovision"

	Waiting       Step = "Waiting"
	Held          Step = "Held"
	Done          Step = "Done"
	Aborted       Step = "Aborted"
	Reprovisioned Step = "Reprovisioned"
)

// Ended says whether nothing more will be done for this run.
func (s Step) Ended() bool { return s == Done || s == Aborted || s == Reprovisioned }

// Idle says whether no step is in progress: the run is Waiting or Held.
func (s Step) Idle() bool { return s == Waiting || s == Held }

// Destructive says whether the step does what takes something away (Action.Destructive).
func (s Step) Destructive() bool { return s == PowerOff || s == DeleteNode || s == Reprovision }

// Strategy is how the target is to be made safe.
type Strategy string

// The strategies of a run.
const (
	PowerCycle    Strategy = "PowerCycle"    // the six steps
	DeleteMachine Strategy = "DeleteMachine" // step 6 alone, where the Machine is to be replaced
)

// Isolation is what step 2 does to the Node of a host that is proven off.
type Isolation string

// The isolations.
const (
	IsolateDelete Isolation = "deleteNode"
	IsolateTaint  Isolation = "outOfServiceTaint"
)

// ProofKind is what proved a host off.
type ProofKind string

// The kinds of proof.
const (
	ProofBMC    ProofKind = "BMC"    // the host's own BMC, which tells its identity
	ProofDevice ProofKind = "Device" // enrolled devices without an identity: outlets, agents
	ProofHuman  ProofKind = "Human"  // the manual confirmation of a person; stays on the record // I26
)
