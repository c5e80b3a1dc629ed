package manifest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fenced/fenced/internal/policy"
)

// FencePolicy decodes a fenced.io/v1alpha1 FencePolicy. It always returns a
// check; any error, even an unknown key, makes it Invalid.
func FencePolicy(fields map[string]any) policy.Check {
	o := read(fields)
	c := checkIdentity(o)
	spec := ownSpec(o, "nodeSelector", "machineSelector", "unhealthyConditions", "nodeStartupTimeout", "limit", "strategy",
		"isolation", "maxAttempts", "deadlines", "zoneKey", "maintenanceWindows", "shortenOnEvidence", "remediationTemplate", "escalatingRemediations")
	c.Clusters = clusters(spec, c.Clusters)
	c.Selector, c.SelectsNodes = ownSelector(spec)
	c.Strategy = policy.Strategy(spec.choice("strategy",
		string(policy.PowerCycleHosts), string(policy.DeleteMachines), string(policy.CreateRequests), string(policy.CountOnly)))
	ownTemplates(spec, &c)
	c.Conditions = ownConditions(spec)
	if len(c.Conditions) == 0 && c.SelectsNodes && c.Strategy != policy.CountOnly {
		spec.fail(spec.at("unhealthyConditions"), "is empty, so no Node would ever be unhealthy")
	}
	if !spec.has("nodeStartupTimeout") && !c.SelectsNodes {
		spec = spec.with("nodeStartupTimeout", defaultStartupTimeout)
	}
	c.StartupTimeout = spec.duration("nodeStartupTimeout")
	c.MaxUnhealthy, c.UnhealthyRange = ownLimit(spec)
	if spec.has("isolation") {
		c.Isolation = spec.choice("isolation", "deleteNode", "outOfServiceTaint")
	}
	c.MaxAttempts = spec.integer("maxAttempts", 1, 10)
	c.Deadlines = deadlines(spec.child("deadlines"))
	c.ZoneKey = labelKey(spec, "zoneKey")
	c.Windows = windows(spec)
	if len(c.Windows) > 0 && c.Strategy == policy.CountOnly {
		// While paused, the policy would not protect its Nodes from other checks.
		spec.fail(spec.at("maintenanceWindows"), "cannot be with strategy None, which never acts")
	}
	c.ShortenOnEvidence = spec.flag("shortenOnEvidence")
	if c.ShortenOnEvidence && (c.Strategy == policy.DeleteMachines || c.Strategy == policy.CreateRequests) {
		// A host that is off may be started again, and nothing reads the BMC again
		// before the deletion or the request.
		spec.fail(spec.at("shortenOnEvidence"), "cannot be with strategy %s, which reads no BMC", c.Strategy)
	}
	c.Invalid = invalid(o)
	return c
}

// DisruptionBudget decodes a fenced.io/v1alpha1 DisruptionBudget. It always
// returns a budget; an error makes it Invalid.
func DisruptionBudget(fields map[string]any) policy.DisruptionBudget {
	o := read(fields)
	id := checkIdentity(o)
	spec := ownSpec(o, "nodeSelector", "machineSelector", "maxUnavailable")
	spec.require("maxUnavailable")
	b := policy.DisruptionBudget{Name: id.Name, Clusters: clusters(spec, id.Clusters), Source: id.Source}
	// An empty selector selects everything here, because a budget only forbids.
	if at, nodes, ok := oneSelector(spec); ok {
		b.Selector, b.SelectsMachines = strictSelector(at), !nodes
	}
	if n := number32(spec, "maxUnavailable", "a percentage"); n != nil {
		b.MaxUnavailable = *n
	}
	b.Invalid = invalid(o)
	return b
}

// ownSpec checks what all of fenced's own documents have in common.
func ownSpec(o object, keys ...string) object {
	o.allowKeys("apiVersion", "kind", "metadata", "spec")
	meta := o.child("metadata")
	meta.allowKeys("name", "labels", "annotations")
	if name := meta.text("name"); name != "" {
		for _, text := range validation.IsDNS1123Subdomain(name) {
			meta.fail(meta.at("name"), "%q is not a valid name: %s", name, strings.ReplaceAll(text, ";", ","))
		}
	}
	o.require("spec")
	spec := o.child("spec")
	spec.allowKeys(append(keys, "clusters")...)
	return spec
}

// clusters reads which clusters a document is for; annotated are the clusters of
// the annotation.
func clusters(spec object, annotated []string) []string {
	list := spec.texts("clusters")
	seen := map[string]bool{}
	for i, name := range list {
		at := fmt.Sprintf("%s[%d]", spec.at("clusters"), i)
		switch {
		case name == "":
			spec.fail(at, "is empty")
		case seen[name]:
			spec.fail(at, "%q occurs twice", name)
		}
		seen[name] = true
	}
	switch {
	case len(list) == 0:
		return annotated
	case len(annotated) > 0:
		spec.fail(spec.at("clusters"), "the annotation %s names a cluster, too", clusterAnnotation)
	}
	return list
}

// ownSelector reads which targets a FencePolicy covers. // I18
func ownSelector(spec object) (s labels.Selector, nodes bool) {
	at, nodes, ok := oneSelector(spec)
	if !ok {
		return nil, nodes
	}
	s = strictSelector(at)
	if s != nil && s.Empty() {
		at.fail(at.path, "is empty; it must select targets")
		s = nil
	}
	return s, nodes
}

// oneSelector finds the one of two selectors that is set, and whether it selects
// Nodes.
func oneSelector(spec object) (at object, nodes, ok bool) {
	nodes = spec.has("nodeSelector")
	name := "machineSelector"
	if nodes {
		name = "nodeSelector"
	}
	switch {
	case nodes && spec.has("machineSelector"):
		spec.fail(spec.path, "nodeSelector and machineSelector are both set; set only one of them")
		return at, nodes, false
	case !spec.has(name):
		spec.fail(spec.path, "nodeSelector or machineSelector is missing")
		return at, nodes, false
	}
	return spec.child(name), nodes, true
}

func strictSelector(o object) labels.Selector {
	before := len(*o.errs)
	o.allowKeys("matchLabels", "matchExpressions")
	values := o.child("matchLabels")
	values.allowKeys(slices.Collect(maps.Keys(values.fields))...) // any key, and each with a value
	for _, e := range o.shortList("matchExpressions") {
		e.allowKeys("key", "operator", "values")
		e.require("key", "operator")
	}
	if len(*o.errs) > before {
		return nil
	}
	return selector(o)
}

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
	case p.Kind != "" && requestKind(p.Kind) == "":
		o.fail(o.at("kind"), "%q is not the kind of a template: its name must end in Template", p.Kind)
	case nodes && p.Namespace == "":
		o.fail(o.at("namespace"), "is missing: with a nodeSelector the request is made in the namespace of its template")
	case !nodes && p.Namespace != "":
		o.fail(o.at("namespace"), "cannot be set with a machineSelector: template and request are in the namespace of the Machine")
	}
	return p
}

func ownConditions(spec object) []policy.UnhealthyCondition {
	var list []policy.UnhealthyCondition
	first := map[[2]string]string{}
	for _, o := range spec.shortList("unhealthyConditions") {
		o.allowKeys("type", "status", "timeout")
		o.require("type", "status", "timeout")
		u := policy.UnhealthyCondition{
			Type: o.text("type"), Status: o.choice("status", "Unknown", "False", "True"), Timeout: o.duration("timeout"),
		}
		if o.has("type") && u.Type == "" {
			o.fail(o.at("type"), "is empty")
		}
		pair := [2]string{u.Type, u.Status}
		if at := first[pair]; at != "" {
			o.fail(o.path, "%s with status %s occurs in %s, too", u.Type, u.Status, at)
		}
		first[pair] = o.path
		list = append(list, u)
	}
	return list
}

var (
	limitNumber = regexp.MustCompile(`^[0-9]{1,9}$`)
	limitRange  = regexp.MustCompile(`^\[([0-9]{1,9})-([0-9]{1,9})\]$`)
)

// ownLimit reads a number, a percentage or a range; both results are empty if it
// is absent.
func ownLimit(spec object) (limit *intstr.IntOrString, bounds string) {
	text, _ := spec.fields["limit"].(string)
	m := limitRange.FindStringSubmatch(text)
	if m == nil {
		return number32(spec, "limit", `a percentage, nor a range like "[1-3]"`), ""
	}
	low, _ := strconv.Atoi(m[1]) // digits only
	high, _ := strconv.Atoi(m[2])
	if low > high {
		spec.fail(spec.at("limit"), "%q ends before it begins", text)
	}
	return nil, text
}

// number32 reads a non-negative number, or a percentage up to 100.
func number32(spec object, name, orElse string) *intstr.IntOrString {
	n := intOrText(spec, name)
	if n == nil {
		return nil
	}
	digits, percent := strings.CutSuffix(n.StrVal, "%")
	value, err := strconv.Atoi(digits)
	switch {
	case n.Type == intstr.Int && n.IntVal < 0:
		spec.fail(spec.at(name), "%d is negative", n.IntVal)
	case n.Type == intstr.Int:
	case err != nil || !limitNumber.MatchString(digits):
		spec.fail(spec.at(name), "%q is neither a whole number nor %s", n.StrVal, orElse)
	case percent && value > 100:
		spec.fail(spec.at(name), "%q is more than 100%%", n.StrVal)
	}
	return n
}

func deadlines(o object) policy.Deadlines {
	o.allowKeys("powerOff", "powerOn", "nodeReady", "run")
	return policy.Deadlines{
		PowerOff: o.positiveDuration("powerOff"), PowerOn: o.positiveDuration("powerOn"), NodeReady: o.positiveDuration("nodeReady"), Run: o.positiveDuration("run"),
	}
}

func labelKey(spec object, name string) string {
	s, ok := get[string](spec, name, "a text")
	if !ok {
		return ""
	}
	for _, text := range validation.IsQualifiedName(s) {
		spec.fail(spec.at(name), "%q is not a label key: %s", s, strings.ReplaceAll(text, ";", ","))
	}
	return s
}

// maxWindow is the longest maintenance window. A longer one would disable the
// policy for a time that nobody notices.
const maxWindow = 7 * 24 * time.Hour

// windows reads the maintenance windows of a FencePolicy.
func windows(spec object) []policy.Window {
	var list []policy.Window
	for _, o := range spec.shortList("maintenanceWindows") {
		o.allowKeys("schedule", "duration", "action")
		o.require("schedule", "duration")
		o.choice("action", "Pause") // the only action
		w := policy.Window{Text: o.text("schedule"), Duration: o.positiveDuration("duration")}
		if w.Duration > maxWindow {
			o.fail(o.at("duration"), "%q is longer than 7 days", o.text("duration"))
		}
		if o.has("schedule") {
			starts, err := schedule(w.Text)
			if err != nil {
				o.fail(o.at("schedule"), "%q is not a schedule: %s", w.Text, strings.ReplaceAll(err.Error(), ";", ","))
			}
			w.Starts = starts
		}
		list = append(list, w)
	}
	return list
}

const zonePrefix = "CRON_TZ="

var fiveFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// schedule parses five cron fields, in UTC unless CRON_TZ= sets another zone.
// This host's own zone is never used, so that a policy has the same meaning
// everywhere.
func schedule(text string) (cron.Schedule, error) {
	zone, rest := "UTC", text
	if after, ok := strings.CutPrefix(text, zonePrefix); ok {
		zone, rest, _ = strings.Cut(after, " ")
	}
	if zone == "" || zone == "Local" {
		return nil, fmt.Errorf("%s%s is not a time zone", zonePrefix, zone)
	}
	if strings.Contains(rest, "TZ=") {
		return nil, fmt.Errorf("%s may occur only once, at the beginning", zonePrefix)
	}
	s, err := fiveFields.Parse(zonePrefix + zone + " " + rest)
	if err != nil {
		return nil, err
	}
	if in, ok := s.(*cron.SpecSchedule); ok && in.Location != time.UTC {
		clock := *in
		clock.Location = time.UTC
		s = everyDay{Schedule: s, clock: &clock, zone: in.Location}
	}
	// A fixed time, so that a valid policy stays valid. A leap day is less than
	// five years away from it, which is how far the library searches.
	if s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("it never matches")
	}
	return s, nil
}

// everyDay is a schedule in a zone that begins also on the day on which the clock is set forward past its time: then, when it is set. The
// library leaves that day out, and a maintenance window of hours with it.
type everyDay struct {
	cron.Schedule
	clock cron.Schedule // what the clock on the wall shows, as if it were UTC
	zone  *time.Location
}

// Next implements cron.Schedule.
func (d everyDay) Next(after time.Time) time.Time {
	next := d.Schedule.Next(after)
	for at := after; !next.IsZero(); {
		_, set := at.In(d.zone).ZoneBounds() // when the clock is set
		if set.IsZero() || !set.Before(next) {
			break
		}
		last := wall(set.Add(-time.Nanosecond))
		if shown := d.clock.Next(last); !shown.IsZero() && shown.Before(wall(set)) {
			return set.In(after.Location())
		}
		at = set
	}
	return next
}

// wall is what the clock shows at an instant, as if it were UTC.
func wall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}
