package reason

// Reasons with which a run is Held, ends, or goes back to On without isolation.
// docs/six-steps.md says what each of them asks an operator to do.
const (
	// PowerForbidden: the host may not be switched off: its owner forbids it, its BMC has lied, or it is there twice.
	PowerForbidden Code = "PowerForbidden"
	// TargetChanged: fresh reads show another Node, machine, Machine, BareMetalHost or cluster than the decision was made on.
	TargetChanged Code = "TargetChanged"
	// Recovered: the fresh objects do not ask for the run any more.
	Recovered Code = "Recovered"
	// Withdrawn: the request or check of the run is gone or paused, or the mode does not allow the run any more.
	Withdrawn Code = "Withdrawn"
	// Aborted: a person aborted the run.
	Aborted Code = "Aborted"
	// Unfenced: a person wanted the host back.
	Unfenced Code = "Unfenced"
	// ClosedAsIs: a person ended the run and left the host as it is.
	ClosedAsIs Code = "ClosedAsIs"
	// OperatorOff: the host stays off, as was ordered.
	OperatorOff Code = "OperatorOff"
	// ConfirmedOff: the host stays off after a manual confirmation.
	ConfirmedOff Code = "ConfirmedOff"
	// FalseOff: the host lived while its BMC said Off.
	FalseOff Code = "FalseOff"
	// OutletContradicted: an outlet reads Off while a lower power level reads On.
	OutletContradicted Code = "OutletContradicted"
	// NotSaved: the store did not confirm the first record of the run.
	NotSaved Code = "NotSaved"
	// NotJudged: what the decision needs could not be read in time.
	NotJudged Code = "NotJudged"
	// PowerOffFailed: the host was not proven off in time.
	PowerOffFailed Code = "PowerOffFailed"
	// IsolationFailed: the Node could not be deleted or tainted in time.
	IsolationFailed Code = "IsolationFailed"
	// NodeStillReady: the control plane still calls the Node Ready.
	NodeStillReady Code = "NodeStillReady"
	// NodeFinalizer: a finalizer keeps the deleted Node.
	NodeFinalizer Code = "NodeFinalizer"
	// APIForbidden: the API server forbids what the step needs.
	APIForbidden Code = "APIForbidden"
	// APIUnreachable: the API server did not answer in time.
	APIUnreachable Code = "APIUnreachable"
	// PowerOnFailed: the host was not read On in time.
	PowerOnFailed Code = "PowerOnFailed"
	// RestoreFailed: labels, annotations or taints could not be restored.
	RestoreFailed Code = "RestoreFailed"
	// RequestNotCleared: the remediation request could not be taken off the Machine.
	RequestNotCleared Code = "RequestNotCleared"
	// AttemptsExhausted: the power cycles are used up.
	AttemptsExhausted Code = "AttemptsExhausted"
	// RunTimeout: the run took longer than power.runTimeout.
	RunTimeout Code = "RunTimeout"
	// FoundOff: the host was off before fenced came.
	FoundOff Code = "FoundOff"
	// NodeRenamed: the host registered as another Node.
	NodeRenamed Code = "NodeRenamed"
)

// OfBMC is the code of what a BMC refused, by the kind of the error: BMCAuth, for example.
func OfBMC(kind string) Code { return Code("BMC" + kind) }
