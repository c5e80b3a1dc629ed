package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
)

// quota is the limit of a NodeHealthCheck: how many Nodes must be healthy, or how
// many may be unhealthy.
type quota struct {
	field string
	limit limit
}

var wholePercent = regexp.MustCompile(`^(100|[0-9]{1,2})%$`)

// quota parses the limit that the check has. It must have one: medik8s' webhook refuses a check without, and its
// controller does nothing for it. The 51 % of older versions is a default of their CRD, which the API server
// writes into the object. medik8s does not accept a string without a percent sign.
func (c *Check) quota() (quota, error) {
	q := quota{field: "minHealthy"}
	raw := c.MinHealthy
	switch {
	case raw != nil && c.MaxUnhealthy != nil:
		return q, fmt.Errorf("spec.minHealthy: %s and spec.maxUnhealthy: %s are both set; set only one of them", raw.String(), c.MaxUnhealthy.String())
	case raw == nil && c.MaxUnhealthy == nil:
		return q, errors.New("spec.minHealthy: is missing, and so is spec.maxUnhealthy (set one of them)")
	case raw == nil:
		q.field, raw = "maxUnhealthy", c.MaxUnhealthy
	}
	if raw.Type == intstr.Int {
		q.limit = limit{value: int(raw.IntVal)}
		if raw.IntVal < 0 {
			return q, fmt.Errorf("spec.%s: %d is negative", q.field, raw.IntVal)
		}
		return q, nil
	}
	if !wholePercent.MatchString(raw.StrVal) {
		return q, fmt.Errorf("spec.%s: %q is neither a whole number nor a percentage up to 100%%", q.field, raw.StrVal)
	}
	value, err := strconv.Atoi(strings.TrimSuffix(raw.StrVal, "%"))
	q.limit = limit{value: value, percent: true}
	return q, err
}

// roundedUp returns the limit as a number of expected targets. medik8s rounds
// percentages up; the other API families round down.
func (l limit) roundedUp(expected int) int {
	if !l.percent {
		return l.value
	}
	return (l.value*expected + 99) / 100
}

// tallyMedik8s allows remediation while enough Nodes are healthy.
func (c *Check) tallyMedik8s(expected, healthy, unlabelled int) tally {
	q, _ := c.quota() // settingOf has checked that it parses
	y := tally{limit: c.limitText()}
	least := q.limit.roundedUp(expected)
	if q.field == "maxUnhealthy" {
		if known := expected - unlabelled; q.limit.roundedUp(known) > known {
			y.invalid = fmt.Sprintf("spec.maxUnhealthy: %s is more than the %d Nodes that are selected", y.limit, known)
			return y
		}
		least = expected - least
	}
	y.max = expected - least
	y.allowed, y.more = healthy >= least, max(0, healthy-least)
	if y.allowed {
		return y
	}
	y.reason = reason.ShortCircuit
	y.message = fmt.Sprintf("%d of %d Nodes are healthy, fewer than minHealthy %s (%d)", healthy, expected, y.limit, least)
	if q.field == "maxUnhealthy" {
		y.message = fmt.Sprintf("%d of %d Nodes are not healthy, more than maxUnhealthy %s (%d)", expected-healthy, expected, y.limit, y.max)
	}
	return y
}

// limitTextMedik8s is the limit as its author wrote it; "" if there is none.
func (c *Check) limitTextMedik8s() string {
	switch {
	case c.MinHealthy != nil:
		return c.MinHealthy.String()
	case c.MaxUnhealthy != nil:
		return c.MaxUnhealthy.String()
	}
	return ""
}
