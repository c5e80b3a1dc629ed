package asroot

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// noted notes what became of a test.
type noted struct {
	testing.TB
	became string
}

func (n *noted) Helper()               {}
func (n *noted) Fatalf(string, ...any) { n.became = "failed" }
func (n *noted) Skipf(string, ...any)  { n.became = "skipped" }

func TestNeed(t *testing.T) {
	for _, c := range []struct {
		euid       int
		ci, became string
	}{{0, "", ""}, {0, "true", ""}, {1000, "", "skipped"}, {1000, "true", "failed"}} {
		n := &noted{}
		need(n, c.euid, c.ci, "give a file away")
		assert.Equal(t, c.became, n.became, "%+v", c)
	}
}
