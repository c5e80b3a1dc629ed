package manifest

import (
	"time"

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

// Request decodes a remediation request of any kind. The contract does not define
// its spec.
func Request(fields map[string]any) (policy.Request, error) {
	o := read(fields)
	meta := o.child("metadata")
	annotations := meta.textMap("annotations")
	q := policy.Request{
		APIVersion: o.text("apiVersion"), Kind: o.text("kind"),
		NodeName:     annotations[requestNode],
		TemplateName: annotations[requestTemplate],
		Created:      meta.time("creationTimestamp"),
	}
	if q.TemplateName == "" {
		q.TemplateName = annotations[clonedFrom]
	}
	_, q.ControlPlane = meta.textMap("labels")[requestControlPlane]
	q.TimedOut = instant(meta, annotations, requestTimedOut)
	q.HealthyDelaySince = instant(meta, annotations, requestHealthyDelay)
	q.Namespace, q.Name, _, _ = identify(meta, false)
	for _, ref := range meta.children("ownerReferences") {
		q.Owners = append(q.Owners, policy.Owner{Kind: ref.text("kind"), Name: ref.text("name"), UID: ref.text("uid")})
	}
	q.Conditions = conditions(o.child("status"))
	return q, o.err()
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
	}
	return t
}

// conditions reads the list of that name.
func conditions(o object) []policy.Condition {
	var list []policy.Condition
	for _, c := range o.children("conditions") {
		list = append(list, policy.Condition{
			Type: c.text("type"), Status: c.text("status"), LastTransition: c.time("lastTransitionTime"),
		})
	}
	return list
}
