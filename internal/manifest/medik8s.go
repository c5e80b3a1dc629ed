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

// Defaults and limits of medik8s.
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

// NodeHealthCheck decodes a remediation.medik8s.io/v1alpha1 NodeHealthCheck. It
// always returns a check; an error makes it Invalid.
func NodeHealthCheck(fields map[string]any) policy.Check {
	o := read(fields)
	c := checkIdentity(o)
	spec := o.child("spec")
	c.SelectsNodes, c.Strategy = true, policy.CreateRequests
	c.Evaluator = c.Annotations[evaluatorAnnotation]
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
		spec.fail(spec.at("escalatingRemediations"), "and spec.remediationTemplate are both set; set only one of them")
	}
	c.Disabled = templatesProblem(&c)
	if c.MaxUnhealthy != nil && deletesMachines(&c) {
		spec.fail(spec.at("maxUnhealthy"), "%s cannot be used with a %s: new Nodes change the total of the percentage", c.MaxUnhealthy.String(), deletionTemplate)
	}
	status := o.child("status")
	c.Storm, c.Attempts = storm(status), attempts(status)
	c.Invalid = invalid(o)
	return c
}

// mandatorySelector reads a selector that must not be missing or empty.
func mandatorySelector(spec object) labels.Selector {
	o := spec.child("selector")
	if len(o.textMap("matchLabels")) == 0 && len(o.children("matchExpressions")) == 0 {
		o.fail(o.path, "is empty; a NodeHealthCheck must select Nodes")
		return nil
	}
	return selector(o)
}

// nodeConditions reads the conditions; their timeout is called duration here.
func nodeConditions(spec object) []policy.UnhealthyCondition {
	if !spec.has("unhealthyConditions") {
		spec = spec.with("unhealthyConditions", []any{
			map[string]any{"type": "Ready", "status": "False", "duration": medik8sDuration},
			map[string]any{"type": "Ready", "status": "Unknown", "duration": medik8sDuration},
		})
	}
	return unhealthyConditions(spec, "unhealthyConditions", "duration", object.duration)
}

// escalation reads the templates that are tried one after the other.
func escalation(spec object) []policy.Escalation {
	var list []policy.Escalation
	for _, o := range spec.shortList("escalatingRemediations") {
		o.mustHave("order", "timeout", "remediationTemplate")
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

// templatesProblem returns why medik8s itself would ignore the check because of
// its templates; "" if it would not.
func templatesProblem(c *policy.Check) string {
	if c.Template == nil && len(c.Escalation) == 0 {
		return "spec.remediationTemplate: is missing, and so is spec.escalatingRemediations"
	}
	if c.Template != nil {
		return templateProblem("spec.remediationTemplate", c.Template)
	}
	for i := range c.Escalation {
		path := fmt.Sprintf("spec.escalatingRemediations: the template of order %d", c.Escalation[i].Order)
		if why := templateProblem(path, &c.Escalation[i].Template); why != "" {
			return why
		}
	}
	return ""
}

func templateProblem(path string, p *policy.Template) string {
	switch {
	case p.APIVersion == "" || p.Kind == "" || p.Name == "":
		return path + ": names no template"
	case requestKind(p.Kind) == "":
		return fmt.Sprintf("%s: %s is not the kind of a template", path, p.Kind)
	case p.Kind == metal3Template && p.Namespace != metal3Namespace:
		// The Machine must own its request, so both must be in the same namespace.
		return fmt.Sprintf("%s: a %s must be in namespace %s, not %q", path, metal3Template, metal3Namespace, p.Namespace)
	}
	return ""
}

// deletesMachines reports whether the check may delete Machines.
func deletesMachines(c *policy.Check) bool {
	deletes := func(p *policy.Template) bool { return strings.EqualFold(p.Kind, deletionTemplate) }
	return c.Template != nil && deletes(c.Template) ||
		slices.ContainsFunc(c.Escalation, func(e policy.Escalation) bool { return deletes(&e.Template) })
}

// storm reads the state of the last storm from the check's status.
func storm(status object) (s policy.Storm) {
	for _, c := range conditions(status) {
		if c.Status != "True" {
			continue
		}
		switch c.Type {
		case stormCondition:
			s.Active = true
		case cooldownCondition:
			s.CooldownSince = c.LastTransition
		}
	}
	return s
}

// maxAttempts is how many bytes more are kept of a check for what it says of the Nodes that are unhealthy: in an
// outage that may be all of a cluster. Only an administrator writes a NodeHealthCheck.
const maxAttempts = 1 << 21

// attempts reads from the status which requests the check has made for Nodes that
// are still unhealthy, and which of them timed out.
func attempts(status object) map[string][]policy.Attempt {
	var all map[string][]policy.Attempt
	*status.left += maxAttempts
	for _, n := range status.children("unhealthyNodes") {
		for _, r := range n.children("remediations") {
			made := r.child("resource")
			if all == nil {
				all = map[string][]policy.Attempt{}
			}
			name := n.text("name")
			all[name] = append(all[name], policy.Attempt{
				APIVersion: made.text("apiVersion"), Kind: made.text("kind"), TemplateName: r.text("templateName"),
				Started: r.time("started"), TimedOut: r.time("timedOut"),
			})
		}
	}
	return all
}

// nodeCheckSchema is the schema of a NodeHealthCheck.
var nodeCheckSchema = schema{
	"apiVersion": nil, "kind": nil, "metadata": nil, "status": nil,
	"spec": {
		"selector":              selectorSchema,
		"unhealthyConditions":   {"type": nil, "status": nil, "duration": nil},
		"minHealthy":            nil,
		"maxUnhealthy":          nil,
		"pauseRequests":         nil,
		"healthyDelay":          nil,
		"stormCooldownDuration": nil,
		"remediationTemplate":   referenceSchema,
		"escalatingRemediations": {
			"order": nil, "timeout": nil, "remediationTemplate": referenceSchema,
		},
	},
}
