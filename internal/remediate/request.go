package remediate

// Request names one remediation request: an object in the cluster that asks for the run. An
// in-cluster controller, or a person, made it.
type Request struct {
	Kind      string `json:"kind"` // FencedRemediation, or Machine for one that is annotated
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid"` // tells it from a later one of the same name
	// OnManagementAPI: the object is on a separate management API.
	OnManagementAPI bool `json:"onManagementAPI,omitempty"`
}
