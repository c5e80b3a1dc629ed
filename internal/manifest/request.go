package manifest

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenced/fenced/internal/policy"
)

// Annotations that medik8s writes on its remediation requests.
const (
	requestNode         = "remediation.medik8s.io/node-name"
	requestTemplate     = "remediation.medik8s.io/template-name"
	requestTimedOut     = "remediation.medik8s.io/nhc-timed-out"
	requestHealthyDelay = "remediation.medik8s.io/healthy-delay"
	requestControlPlane = "remediation.medik8s.io/isControlPlaneNode"
	// clonedFrom is the Cluster API's annotation for the template's name.
	clonedFrom = "cluster.x-k8s.io/cloned-from-name"
)

// Annotations on the requests that fenced makes in place of a check's own controller.
const (
	// RequestCheck holds the mark of the check.
	RequestCheck = "fenced.io/check"
	// RequestMadeBy names the installation of fenced (all instances with one store), its
	// cluster, and the record of the request in that store.
	RequestMadeBy = "fenced.io/made-by"
	// RequestTimedOut tells a remediator of medik8s' contract to stop.
	RequestTimedOut = requestTimedOut
	// RequestHealthyDelay says since when the target of a request is well.
	RequestHealthyDelay = requestHealthyDelay
)

// RequestFinalizer keeps a FencedRemediation while its run may leave the host off.
const RequestFinalizer = "fenced.io/power"

// RequestHolder is the annotation beside the finalizer: who set it, for which cluster, and a
// random text.
const RequestHolder = "fenced.io/power-held-by"

// RequestPhase is the annotation with the phase that a Metal3Remediation was told last. The status of that kind
// takes only the phases of its own controller.
const RequestPhase = "fenced.io/power-phase"

// Request decodes a remediation request of any kind. The contract does not define
// its spec.
func Request(fields map[string]any) (policy.Request, error) {
	o := read(fields)
	meta := o.child("metadata")
	annotations := meta.annotations(requestNode, requestTemplate, clonedFrom, RequestCheck, RequestMadeBy, requestTimedOut, requestHealthyDelay)
	q := policy.Request{
		APIVersion: o.text("apiVersion"), Kind: o.text("kind"),
		NodeName:     annotations[requestNode],
		TemplateName: annotations[requestTemplate],
		Created:      meta.time("creationTimestamp"),
	}
	if q.TemplateName == "" {
		q.TemplateName = annotations[clonedFrom]
	}
	q.Check, q.MadeBy = annotations[RequestCheck], annotations[RequestMadeBy]
	q.Finalizer = slices.ContainsFunc(meta.texts("finalizers"), isRemediators)
	q.Begun = q.Finalizer || len(o.child("status").fields) > 0
	_, q.ControlPlane = meta.textMap("labels")[requestControlPlane]
	q.TimedOut = timedOut(annotations)
	q.HealthyDelaySince = instant(meta, annotations, requestHealthyDelay)
	q.Namespace, q.Name, _ = identify(meta, false)
	for _, ref := range meta.shortList("ownerReferences") {
		q.Owners = append(q.Owners, policy.Owner{Kind: ref.text("kind"), Name: ref.text("name"), UID: ref.text("uid")})
	}
	q.Conditions = conditions(o.child("status"))
	q.UID, q.Deleting = meta.text("uid"), !meta.time("deletionTimestamp").IsZero()
	q.Generation = int64(meta.whole("generation", 0))
	if group, _, _ := strings.Cut(q.APIVersion, "/"); group == groupFenced && q.Kind == policy.FencedRemediationKind {
		status := o.child("status")
		q.Power = powerRequest(o.child("spec"), meta, status)
		q.Begun = q.Begun && (q.Finalizer || len(status.fields) > 1 || status.whole("observedGeneration", 0) != neverObserved)
	}
	return q, o.err()
}

// neverObserved is the observedGeneration with which the API server makes a FencedRemediation.
const neverObserved = -1

// isRemediators reports whether a finalizer may be that of a remediator. Kubernetes sets these itself
// when a deletion treats what the object owns: they say nothing about who is at work. // I22
func isRemediators(finalizer string) bool {
	return finalizer != metav1.FinalizerDeleteDependents && finalizer != metav1.FinalizerOrphanDependents
}

// OwnRequest is Request for a cluster where fenced carries out Metal3Remediations, too.
// Their retryLimit of 1, the default, means two power cycles.
func OwnRequest(fields map[string]any) (policy.Request, error) {
	q, err := Request(fields)
	if group, _, _ := strings.Cut(q.APIVersion, "/"); err != nil || group != Metal3RequestGroup || q.Kind != Metal3RequestKind {
		return q, err
	}
	o := read(fields)
	q.Power = powerRequest(object{errs: o.errs, left: o.left}, o.child("metadata"), o.child("status"))
	q.Power.Phase = metal3Phase(o.child("metadata").annotations(RequestPhase)[RequestPhase], q.Power.Phase)
	q.Power.Attempts = max(1, o.child("spec").child("strategy").whole("retryLimit", 1)) + 1
	return q, o.err()
}

// The kind of the requests of Metal3's provider for the Cluster API, and its phases.
const (
	Metal3RequestGroup = "infrastructure.cluster.x-k8s.io"
	Metal3RequestKind  = "Metal3Remediation"

	Metal3Running  = "Running"
	Metal3Waiting  = "Waiting"          // the host was power-cycled
	Metal3Deleting = "Deleting machine" // the last: the Machine is being replaced
	Metal3Failed   = "Failed"           // the last: the host is not remediated
)

// metal3Phase is the phase of a Metal3Remediation: what fenced has told it, else what stands in its status. One
// whose own controller does nothing more was answered. // I4
func metal3Phase(told, status string) string {
	switch {
	case told != "":
		return told
	case status == Metal3Deleting:
		return policy.PhaseFailed
	}
	return status
}

// powerRequest decodes the spec of a FencedRemediation. Its CRD limits the numbers.
func powerRequest(spec, meta, status object) *policy.PowerRequest {
	p := &policy.PowerRequest{
		Timeout:    time.Duration(spec.whole("timeoutSeconds", 0)) * time.Second,
		ReadyNodes: spec.flag("remediateReadyNodes"), HasFinalizer: slices.Contains(meta.texts("finalizers"), RequestFinalizer),
		HeldBy: meta.annotations(RequestHolder)[RequestHolder], Phase: status.text("phase"), Run: status.text("run"),
	}
	p.Attempts = powerCycles(spec)
	return p
}

// powerCycles is how many power cycles spec.retryLimit allows; 0 leaves that to the configuration.
func powerCycles(spec object) int { return max(-1, spec.whole("retryLimit", -1)) + 1 }

// TemplateAttempts is how many power cycles the requests of a FencedRemediationTemplate allow; 0 leaves that to
// the configuration.
func TemplateAttempts(fields map[string]any) (int, error) {
	o := read(fields)
	return powerCycles(o.child("spec").child("template").child("spec")), o.err()
}

// longAgo stands for a time that an annotation does not tell. The zero time would mean that there is no annotation.
var longAgo = time.Unix(0, 0).UTC()

// timedOut is since when a request is given up. As for medik8s' remediators, its annotation says that whatever its
// value: a person may have written it. // I22
func timedOut(annotations map[string]string) time.Time {
	text, told := annotations[requestTimedOut]
	if !told {
		return time.Time{}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil && !t.IsZero() {
		return policy.Bounded(t)
	}
	return longAgo
}

// instant reads an annotation that holds a time.
func instant(meta object, annotations map[string]string, key string) (t time.Time) {
	text := annotations[key]
	if text == "" {
		return t
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		meta.fail(meta.at("annotations"), "the value of %s, %q, is not a time", key, text)
	} else if t.IsZero() {
		return longAgo
	}
	return policy.Bounded(t)
}
