package asroot

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

type noted struct {
	testing.TB
	became string
}

func (n *noted) Helper()               {}
func (n *noted) Fatalf(string, ...any) { n.became = "failed" }
func (n *noted) Skip(...any)           { n.became = "skipped" }

func TestLeaveOut(t *testing.T) {
	for ci, became := range map[string]string{"": "skipped", "true": "failed"} {
		n := &noted{}
		leaveOut(n, ci, "only root can give a file away")
		assert.Equal(t, became, n.became, "CI=%s", ci)
	}
}

func TestCan(t *testing.T) {
	for ci, became := range map[string]string{"": "skipped", "true": "failed"} {
		t.Setenv("CI", ci)
		n := &noted{}
		Can(n, "do what fails", "false")
		assert.Equal(t, became, n.became, "CI=%s", ci)
	}
}
