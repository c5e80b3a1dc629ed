package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
)

// limit is a parsed maxUnhealthy: a number of targets, or a percentage.
type limit struct {
	value   int
	percent bool
}

// parseLimit parses maxUnhealthy as OpenShift does: an integer, or a string of an
// integer with an optional percent sign. "2" is two targets, not two percent. Nil
// is 100%.
func parseLimit(raw *intstr.IntOrString) (limit, error) {
	if raw == nil {
		return limit{value: 100, percent: true}, nil
	}
	if raw.Type == intstr.Int {
		return limit{value: int(raw.IntVal)}, nil
	}
	digits, percent := strings.CutSuffix(raw.StrVal, "%")
	value, err := strconv.Atoi(digits)
	if err != nil {
		return limit{}, fmt.Errorf("spec.maxUnhealthy: %q is neither a whole number nor a percentage", raw.StrVal)
	}
	return limit{value: value, percent: percent}, nil
}

// of returns the limit as a number of expected targets: rounded down, never
// negative, and not capped, so 150% is more than all.
func (l limit) of(expected int) int {
	if !l.percent {
		return max(0, l.value)
	}
	// Floating point, because a huge percentage must not overflow.
	return int(min(max(0, math.Floor(float64(l.value)*float64(expected)/100)), math.MaxInt32))
}

// parseLimits checks the check's limits.
func (c *Check) parseLimits() error {
	switch c.family() {
	case clusterAPI:
		_, _, err := c.parseClusterAPILimits()
		return err
	case medik8s:
		_, err := c.quota()
		return err
	case fenced:
		return c.parsePolicyLimit()
	}
	_, err := parseLimit(c.MaxUnhealthy)
	return err
}

// tally is the limit of a check applied to its counters.
type tally struct {
	limit    string // as written
	max, min int    // as numbers of targets
	allowed  bool
	more     int         // remediations that the limit still allows
	reason   reason.Code // why it is not allowed
	message  string
	invalid  string // why the limit cannot be applied to these counters
}

// tally applies the check's limit to the counters, by the rules of its API
// family.
func (c *Check) tally(n count) tally {
	switch c.family() {
	case clusterAPI:
		return c.tallyClusterAPI(n)
	case medik8s:
		return c.tallyMedik8s(n.expected, n.healthy, n.unlabelled)
	case fenced:
		return c.tallyFencePolicy(n)
	}
	parsed, _ := parseLimit(c.MaxUnhealthy) // settingOf has checked that it parses
	y := tally{limit: c.limitText(), max: parsed.of(n.expected)}
	unhealthy := n.expected - n.healthy
	y.allowed, y.more = unhealthy <= y.max, max(0, y.max-unhealthy)
	if !y.allowed {
		y.reason = reason.ShortCircuit
		y.message = fmt.Sprintf("%d of %d targets are not healthy, more than maxUnhealthy %s (%d)", unhealthy, n.expected, y.limit, y.max)
	}
	return y
}

// limitText is the limit as its author wrote it, or the documented default.
func (c *Check) limitText() string {
	switch {
	case c.family() == medik8s:
		return c.limitTextMedik8s()
	case c.UnhealthyRange != "":
		return c.UnhealthyRange
	}
	if c.MaxUnhealthy == nil {
		return "100%"
	}
	return c.MaxUnhealthy.String()
}
