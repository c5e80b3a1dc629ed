package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/policy"
)

// Defaults and bounds of the medik8s lineage.
const (
	medik8sDuration    = "300s"
	medik8sMinTimeout  = 60 * time.Second
	metal3Template     = "Metal3RemediationTemplate"
	metal3Namespace    = "openshift-machine-api"
	deletionTemplate   = "MachineDeletionRemediationTemplate"
	stormCondition     = "StormActive"
	cooldownCondition  = "StormCooldownActive"
	progressing        = "Progressing"
	clusterVersionKind = "ClusterVersion"
	clusterVersionAPI  = "config.openshift.io/v1"
)

// nodeCheckSchema is a NodeHealthCheck.
var nodeCheckSchema = schema{
	"apiVersion": nil, "kind": nil, "metadata": nil, "status": nil,
	"spec": {
		"selector":              checkSchema["spec"]["selector"],
		"unhealthyConditions":   {"type": nil, "status": nil, "duration": nil},
		"minHealthy":            nil,
		"maxUnhealthy":          nil,
		"pauseRequests":         nil,
		"healthyDelay":          nil,
		"stormCooldownDuration": nil,
		"remediationTemplate":   checkSchema["spec"]["remediationTemplate"],
		"escalatingRemediations": {
			"order": nil, "timeout": nil, "remediationTemplate": checkSchema["spec"]["remediationTemplate"],
		},
	},
}

// NodeHealthCheck decodes a remediation.medik8s.io/v1alpha1 NodeHealthCheck. It
// always gives a check: whatever is wrong makes it Invalid.
func NodeHealthCheck(fields map[string]any) policy.Check {
	o := read(fields)
	c := checkIdentity(o)
	spec := o.child("spec")
	c.SelectsNodes, c.Strategy = true, policy.CreateRequests
	c.Selector = mandatorySelector(spec)
	c.Conditions = nodeConditions(spec)
	c.MinHealthy, c.MaxUnhealthy = intOrText(spec, "minHealthy"), intOrText(spec, "maxUnhealthy")
	c.PauseRequests = spec.texts("pauseRequests")
	c.HealthyDelay = spec.signedDuration("healthyDelay")
	c.StormCooldown = spec.duration("stormCooldownDuration")
	if spec.has("remediationTemplate") {
		c.Template = template(spec.child("remediationTemplate"))
	}
	c.Escalation = escalation(spec)
	if c.Template != nil && len(c.Escalation) > 0 {
		spec.fail(spec.at("escalatingRemediations"), "stands beside spec.remediationTemplate, and only one of them may be")
	}
	c.Disabled = templatesRefused(&c)
	if c.MaxUnhealthy != nil && deletesMachines(&c) {
		spec.fail(spec.at("maxUnhealthy"), "%s cannot be used with a %s: new Nodes change what it is a part of", c.MaxUnhealthy.String(), deletionTemplate)
	}
	status := o.child("status")
	c.Storm, c.Attempts = storm(status), tried(status)
	c.Invalid = invalid(o)
	return c
}

// mandatorySelector reads the selector of a lineage that refuses to select
// everything by leaving it out.
func mandatorySelector(spec object) labels.Selector {
	o := spec.child("selector")
	if len(o.textMap("matchLabels")) == 0 && len(o.children("matchExpressions")) == 0 {
		o.fail(o.path, "is empty, and a NodeHealthCheck must select something")
		return nil
	}
	return selector(o)
}

// nodeConditions reads the conditions, whose time is called duration here.
func nodeConditions(spec object) []policy.UnhealthyCondition {
	if !spec.has("unhealthyConditions") {
		spec = spec.with("unhealthyConditions", []any{
			map[string]any{"type": "Ready", "status": "False", "duration": medik8sDuration},
			map[string]any{"type": "Ready", "status": "Unknown", "duration": medik8sDuration},
		})
	}
	return unhealthyConditions(spec, "duration")
}

// signedDuration reads a duration that may be negative.
func (o object) signedDuration(name string) time.Duration {
	s, ok := get[string](o, name, "a duration")
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		o.fail(o.at(name), "%q is not a duration", s)
	}
	return d
}

// escalation reads the templates that are tried one after the other.
func escalation(spec object) []policy.Escalation {
	var list []policy.Escalation
	for _, o := range spec.few("escalatingRemediations") {
		for _, name := range []string{"order", "timeout", "remediationTemplate"} {
			if !o.has(name) {
				o.fail(o.at(name), "is missing")
			}
		}
		order, _ := get[int64](o, "order", "a whole number")
		e := policy.Escalation{Order: int(order), Timeout: o.duration("timeout"), Template: *template(o.child("remediationTemplate"))}
		if o.has("timeout") && e.Timeout < medik8sMinTimeout {
			o.fail(o.at("timeout"), "%s is less than %s", describeValue(o.fields["timeout"]), medik8sMinTimeout)
		}
		if slices.ContainsFunc(list, func(l policy.Escalation) bool { return l.Order == e.Order }) {
			o.fail(o.at("order"), "%d occurs twice", order)
		}
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b policy.Escalation) int { return cmp.Compare(a.Order, b.Order) })
	return list
}

// templatesRefused says why the lineage itself would ignore the check because
// of what it makes its requests from; "" when it would not.
func templatesRefused(c *policy.Check) string {
	if c.Template == nil && len(c.Escalation) == 0 {
		return "spec.remediationTemplate: is missing, and so is spec.escalatingRemediations"
	}
	if c.Template != nil {
		return templateRefused("spec.remediationTemplate", c.Template)
	}
	for i := range c.Escalation {
		path := fmt.Sprintf("spec.escalatingRemediations: the template of order %d", c.Escalation[i].Order)
		if why := templateRefused(path, &c.Escalation[i].Template); why != "" {
			return why
		}
	}
	return ""
}

func templateRefused(path string, p *policy.Template) string {
	switch {
	case p.APIVersion == "" || p.Kind == "" || p.Name == "":
		return path + ": names no template"
	case !strings.HasSuffix(p.Kind, "Template") || p.Kind == "Template":
		return fmt.Sprintf("%s: %s is not the kind of a template", path, p.Kind)
	case p.Kind == metal3Template && p.Namespace != metal3Namespace:
		// Its request must have the Machine for an owner, so it must live beside it.
		return fmt.Sprintf("%s: a %s must be in namespace %s, not %q", path, metal3Template, metal3Namespace, p.Namespace)
	}
	return ""
}

// deletesMachines says whether the check may make an end of Machines.
func deletesMachines(c *policy.Check) bool {
	deletes := func(p *policy.Template) bool { return strings.EqualFold(p.Kind, deletionTemplate) }
	return c.Template != nil && deletes(c.Template) ||
		slices.ContainsFunc(c.Escalation, func(e policy.Escalation) bool { return deletes(&e.Template) })
}
