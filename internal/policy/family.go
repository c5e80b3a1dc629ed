package policy

import "time"

// family is an API whose checks fenced evaluates. Each is in a file of its own, with a row in families; what it
// does not say itself it has from common. CONTRIBUTING.md says how to add one.
type family interface {
	// addContext adds what a check depends on besides its targets.
	addContext(w *tables, c *Check, a *CheckContext)
	// setting determines whether a check is evaluated, by the rules of the API.
	setting(c *Check, a CheckContext, now time.Time) setting
	// evaluate applies the health rules to one target of an active check. The first rule that matches wins.
	evaluate(t *TargetReport, c *Check, a CheckContext, st *setting, x *Subject, now time.Time)
	// parseLimits returns what is wrong with the limits of a check.
	parseLimits(c *Check) error
	// tally applies the limits, which parse, to the counters.
	tally(c *Check, n count) tally
	// limitText returns the limit as its author wrote it, or the documented default; "" if there is neither.
	limitText(c *Check) string
	// escalates reports whether a check asks one remediator after the other, and counts a target as not healthy
	// while its requests exist.
	escalates() bool
	// waitsForUpgrades reports whether a check does nothing during an upgrade, whatever fenced.yaml says.
	waitsForUpgrades() bool
}

// The families. The zero check is of none: it is common, and settingOf refuses it.
type (
	openShiftFamily  struct{ common }
	clusterAPIFamily struct{ common }
	medik8sFamily    struct{}
	fencedFamily     struct{ common }
)

var (
	unknownFamily family = common{}
	openShift     family = openShiftFamily{}
	clusterAPI    family = clusterAPIFamily{}
	medik8s       family = medik8sFamily{}
	fenced        family = fencedFamily{}
)

// families maps the API version and the kind of a check to its family.
var families = map[[2]string]family{
	{OpenShiftMachineAPI, MachineHealthCheckKind}: openShift,
	{ClusterAPIV1Beta1, MachineHealthCheckKind}:   clusterAPI,
	{ClusterAPIV1Beta2, MachineHealthCheckKind}:   clusterAPI,
	{Medik8sAPI, NodeHealthCheckKind}:             medik8s,
	{FencedAPI, FencePolicyKind}:                  fenced,
}

func (c *Check) family() family {
	if f, ok := families[[2]string{c.APIVersion, c.Kind}]; ok {
		return f
	}
	return unknownFamily
}

// IsCheckKind reports whether checks of some API version have this kind.
func IsCheckKind(kind string) bool {
	for k := range families {
		if k[1] == kind {
			return true
		}
	}
	return false
}

// common is what families have in common.
type common struct{}

func (common) addContext(*tables, *Check, *CheckContext) {}

func (common) setting(c *Check, a CheckContext, now time.Time) setting {
	switch {
	case c.Paused && !c.isEvaluatedBy(a.Rules.Instance):
		return setting{state: StatePaused, message: "the check is paused"}
	case c.Disabled != "":
		return setting{state: StateDisabled, message: c.Disabled}
	}
	return setting{state: StateActive}
}

func (common) evaluate(*TargetReport, *Check, CheckContext, *setting, *Subject, time.Time) {}

func (common) parseLimits(c *Check) error {
	_, err := parseLimit(c.MaxUnhealthy)
	return err
}

func (common) tally(*Check, count) tally { return tally{} }

func (common) limitText(c *Check) string {
	switch {
	case c.UnhealthyRange != "":
		return c.UnhealthyRange
	case c.MaxUnhealthy != nil:
		return c.MaxUnhealthy.String()
	}
	return "100%"
}

func (common) escalates() bool { return false }

func (common) waitsForUpgrades() bool { return false }
