package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
)

// clusterAPIFields are the names of a check's limit fields in its API version.
func (c *Check) clusterAPIFields() (limit, unhealthyRange string) {
	if c.APIVersion == ClusterAPIV1Beta1 {
		return "spec.maxUnhealthy", "spec.unhealthyRange"
	}
	return "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", "spec.remediation.triggerIf.unhealthyInRange"
}

// parseClusterAPILimits parses the range and the limit. Both must be valid, even
// though the range overrides the limit.
func (c *Check) parseClusterAPILimits() (span [2]int, l limit, err error) {
	limitField, rangeField := c.clusterAPIFields()
	if c.UnhealthyRange != "" {
		if span, err = parseRange(c.UnhealthyRange); err != nil {
			return span, l, fmt.Errorf("%s: %w", rangeField, err)
		}
	}
	l, err = parseStrictLimit(c.MaxUnhealthy)
	if err != nil {
		return span, l, fmt.Errorf("%s: %w", limitField, err)
	}
	return span, l, nil
}

// parseStrictLimit parses a limit as the Cluster API does: a string must be a
// percentage, so "10" is an error and not ten targets.
func parseStrictLimit(raw *intstr.IntOrString) (limit, error) {
	if raw != nil && raw.Type == intstr.String && !strings.HasSuffix(raw.StrVal, "%") {
		return limit{}, fmt.Errorf("%q is neither a whole number nor a percentage", raw.StrVal)
	}
	l, err := parseLimit(raw)
	switch {
	case err != nil:
		return limit{}, fmt.Errorf("%q is neither a whole number nor a percentage", raw.StrVal)
	case l.value < 0:
		return limit{}, fmt.Errorf("%s is negative", raw)
	}
	return l, nil
}

var rangeForm = regexp.MustCompile(`^\[([0-9]+)-([0-9]+)\]$`)

// parseRange parses "[min-max]"; both bounds are inclusive.
func parseRange(text string) (span [2]int, err error) {
	m := rangeForm.FindStringSubmatch(text)
	if m == nil {
		return span, fmt.Errorf("%q is not a range like [1-3]", text)
	}
	for i := range span {
		n, err := strconv.ParseUint(m[i+1], 10, 32)
		if err != nil {
			return span, fmt.Errorf("%q: %s is too large", text, m[i+1])
		}
		span[i] = int(n)
	}
	if span[1] < span[0] {
		return span, fmt.Errorf("%q: the maximum is below the minimum", text)
	}
	return span, nil
}

// tallyClusterAPI applies the range if there is one, else the limit.
func (c *Check) tallyClusterAPI(n count) tally {
	span, l, _ := c.parseClusterAPILimits() // settingOf has checked that they parse
	expected, unhealthy := n.expected, n.expected-n.healthy
	y := tally{limit: c.limitText(), max: l.of(expected)}
	if c.UnhealthyRange != "" {
		y.min, y.max = span[0], span[1]
	}
	switch {
	case c.UnhealthyRange != "" && (unhealthy-n.doubtful < y.min || unhealthy > y.max):
		y.reason = reason.OutOfRange
		y.message = fmt.Sprintf("%d of %d targets are not healthy, outside the range %s", unhealthy, expected, y.limit)
	case unhealthy > y.max:
		y.reason = reason.ShortCircuit
		y.message = fmt.Sprintf("%d of %d targets are not healthy, more than the limit %s (%d)", unhealthy, expected, y.limit, y.max)
	default:
		y.allowed, y.more = true, y.max-unhealthy
	}
	return y
}
