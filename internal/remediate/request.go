package remediate

import "github.com/fenced/fenced/internal/reason"

// Request names one remediation request: an object in the cluster that asks for the run. An
// in-cluster controller, or a person, made it.
type Request struct {
	Kind      string `json:"kind"` // FencedRemediation, or Machine for one that is annotated
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid"` // tells it from a later one of the same name
	// OnManagementAPI: the object is on a separate management API.
	OnManagementAPI bool `json:"onManagementAPI,omitempty"`
	// Check is the ID of the check that made it; "" in older records, and if no check did. Once the
	// object is gone, this check says whether the run is still wanted.
	Check string `json:"check,omitempty"`
}

// OutlivesRequest says whether a run goes on with the retries of its record although its request was deleted.
// NodeHealthCheck deletes the requests of a Node that is gone, so a deletion after fenced's own isolation
// says nothing: nobody can see that the Node is still needed. That is over when the Node is back, or when the
// retries are used up; then the run needs a request as before. No Machine is replaced for a request that
// is gone. // I4, I14
func (r Run) OutlivesRequest(n Node) Answer {
	switch {
	case !r.IsolatedAsked, r.Step == Reprovision, r.Reason == reason.AttemptsExhausted:
		return No
	case n.Exists == CannotTell:
		return CannotTell
	}
	return Ask(!n.registered())
}

// endOutliving notes that a run needs a request again: nobody asks for it, and not only because of a pause, which
// may end. In step 6 that says no more than that the Machine stays.
func endOutliving(r Run, s Observation) Run {
	if s.Withdrawn == Yes && r.Step != Reprovision && r.OutlivesRequest(s.Node) == No {
		r.IsolatedAsked = false
	}
	return r
}

// recordAsked notes whether the request of a run asks for it when it sends the isolation.
func recordAsked(r Run, s Observation) Run {
	r.IsolatedAsked = r.Request != nil && s.Withdrawn == No
	return r
}
