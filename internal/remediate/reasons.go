package remediate

// The reason codes with which a run is Held, ends, or goes back to On without isolation.
// They are stored in records and shown to people: a code never changes its value.
// docs/six-steps.md says what each of them asks an operator to do.
const (
	// What forbids to go on; see interlocks.go.
	reasonPaused           = "Paused"
	reasonIdentityMismatch = "IdentityMismatch"
	reasonContested        = "Contested"
	reasonPowerForbidden   = "PowerForbidden"
	reasonTargetChanged    = "TargetChanged"
	reasonRecovered        = "Recovered"
	reasonQuorumLost       = "QuorumLost"
	reasonControlPlane     = "ControlPlane"
	reasonNoController     = "NoController"

	// What a person has ordered.
	reasonAborted      = "Aborted"
	reasonUnfenced     = "Unfenced"
	reasonClosedAsIs   = "ClosedAsIs"
	reasonOperatorOff  = "OperatorOff"
	reasonConfirmedOff = "ConfirmedOff"

	// What speaks against a proof or a confirmation of off.
	reasonFalseOff                 = "FalseOff"
	reasonConfirmedOffContradicted = "ConfirmedOffContradicted"
	reasonOutletContradicted       = "OutletContradicted"

	// What could not be done, or not in time.
	reasonNotSaved          = "NotSaved"
	reasonNotJudged         = "NotJudged"
	reasonPowerOffFailed    = "PowerOffFailed"
	reasonIsolationFailed   = "IsolationFailed"
	reasonNodeStillReady    = "NodeStillReady"
	reasonNodeFinalizer     = "NodeFinalizer"
	reasonAPIForbidden      = "APIForbidden"
	reasonAPIUnreachable    = "APIUnreachable"
	reasonPowerOnFailed     = "PowerOnFailed"
	reasonRestoreFailed     = "RestoreFailed"
	reasonRequestNotCleared = "RequestNotCleared"
	reasonAttemptsExhausted = "AttemptsExhausted"
	reasonRunTimeout        = "RunTimeout"

	// What was found.
	reasonFoundOff    = "FoundOff"
	reasonNodeRenamed = "NodeRenamed"

	// reasonBMC and a bmc.Kind make the code of what a BMC refused: BMCAuth, for example.
	reasonBMC = "BMC"
)
