package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// limit is a parsed maxUnhealthy: a number of targets, or a percentage.
type limit struct {
	value   int
	percent bool
}

// parseLimit reads maxUnhealthy as the OpenShift lineage does: an integer, or a
// text that is an integer with at most one percent sign behind it. "2" is two
// targets, not two percent. Nil is all of them.
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

// of is the limit as a number of expected targets: rounded down, never
// negative, and not capped, because 150% means what it says.
func (l limit) of(expected int) int {
	if !l.percent {
		return max(0, l.value)
	}
	// In floating point because a huge percentage must not wrap around.
	return int(min(max(0, math.Floor(float64(l.value)*float64(expected)/100)), math.MaxInt32))
}

// limitText is the limit as its author wrote it, or the documented default.
func limitText(raw *intstr.IntOrString) string {
	if raw == nil {
		return "100%"
	}
	return raw.String()
}
