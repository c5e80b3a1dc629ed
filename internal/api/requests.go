package api

// RequestStatus is one remediation request for which something is left to do.
type RequestStatus struct {
	Kind      string `json:"kind"` // FencedRemediation, Metal3Remediation, or Machine for one that is annotated
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`    // of its target
	Machine   string `json:"machine,omitempty"` // namespace/name
	Phase     string `json:"phase"`             // Pending, Running or Held; Succeeded or Failed while only its finalizer is left
	Run       string `json:"run,omitempty"`     // the run that it is told about
	// Reason and Message say what refuses a pending one, or where the run of another is.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Finalizer: fenced holds it.
	Finalizer bool `json:"finalizer,omitempty"`
}
