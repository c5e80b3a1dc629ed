package manifest

import (
	"strings"

	"github.com/fenced/fenced/internal/policy"
)

// ownTemplates reads the templates of a FencePolicy with the strategy CreateRequest:
// either one, or several that are tried one after the other.
func ownTemplates(spec object, c *policy.Check) {
	single, several := spec.has("remediationTemplate"), spec.has("escalatingRemediations")
	switch {
	case c.Strategy != policy.CreateRequests && (single || several):
		spec.fail(spec.at("strategy"), "must be CreateRequest: the policy has a template")
	case c.Strategy == policy.CreateRequests && single == several:
		spec.fail(spec.path, "strategy CreateRequest needs remediationTemplate or escalatingRemediations, and not both")
	case single:
		c.Template = ownTemplate(spec.child("remediationTemplate"), c.SelectsNodes)
	case several:
		for _, o := range spec.shortList("escalatingRemediations") {
			o.allowKeys("order", "timeout", "remediationTemplate")
			ownTemplate(o.child("remediationTemplate"), c.SelectsNodes)
		}
		c.Escalation = escalation(spec)
	}
}

// ownTemplate reads one template. A request for a Machine is in the namespace of the
// Machine, one for a Node in that of its template.
func ownTemplate(o object, nodes bool) *policy.Template {
	o.allowKeys("apiVersion", "kind", "namespace", "name")
	o.require("apiVersion", "kind", "name")
	p := template(o)
	switch {
	case p.Kind != "" && (!strings.HasSuffix(p.Kind, "Template") || p.Kind == "Template"):
		o.fail(o.at("kind"), "%q is not the kind of a template: its name must end in Template", p.Kind)
	case nodes && p.Namespace == "":
		o.fail(o.at("namespace"), "is missing: with a nodeSelector the request is made in the namespace of its template")
	case !nodes && p.Namespace != "":
		o.fail(o.at("namespace"), "cannot be set with a machineSelector: template and request are in the namespace of the Machine")
	}
	return p
}
