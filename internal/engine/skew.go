package engine

import (
	"time"

	"github.com/fenced/fenced/internal/remediate"
)

// skewed says by how much this clock is wrong; "" when it is not known to be. // I16
func (c *cluster) skewed(v View) string {
	if v.Skew.Abs() <= c.e.opt.Guards.ClockSkewMax {
		return ""
	}
	return "this clock and the API server's differ by " + v.Skew.Abs().Round(time.Second).String()
}

// clockAgrees says whether this clock agrees with the API server's.
func (c *cluster) clockAgrees() remediate.Answer {
	v := c.view()
	if !v.SkewKnown {
		return remediate.CannotTell
	}
	return remediate.Ask(c.skewed(v) == "")
}
